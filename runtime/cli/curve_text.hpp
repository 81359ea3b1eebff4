#pragma once

#include <string>
#include <string_view>

#include <nlohmann/json_fwd.hpp>

namespace waggle {

/// A plot of one list of /api/v1/curves over the epochs, and its first, best and last values. The
/// document is untrusted, as for status_text. Empty: there are no values.
std::string curve_text(const nlohmann::ordered_json& document, std::string_view name);

} // namespace waggle
