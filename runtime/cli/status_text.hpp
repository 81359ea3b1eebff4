#pragma once

#include <cstdint>
#include <string>

#include <nlohmann/json_fwd.hpp>

namespace waggle {

/// Formats a peer's documents (/api/v1/status and the list in /api/v1/peers) for people: one line
/// per field, then a table of the peers. The documents are untrusted and may be of another version:
/// fields may be missing, unknown or of another type. All fields are shown, in bounded length, as
/// printable ASCII.
std::string status_text(const nlohmann::ordered_json& document,
                        const nlohmann::ordered_json& peers);
/// Who left in the last ten minutes, of /api/v1/peers; empty: nobody. @param now Unix milliseconds.
std::string departures_text(const nlohmann::ordered_json& peers, std::int64_t now);

} // namespace waggle
