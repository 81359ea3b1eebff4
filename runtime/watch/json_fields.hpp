#pragma once

// JSON of other peers, and of files that may be damaged: fields may be missing, or of another type.

#include <optional>
#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

namespace waggle {

/// Nothing if `text` is no JSON, or is nested deeper than any document of ours: copying and writing
/// it recurses once per level.
std::optional<nlohmann::ordered_json> parse_document(std::string_view text, int nesting_max = 32);

/// Null: there is no such field.
nlohmann::ordered_json field(const nlohmann::ordered_json& object, const char* name);

/// Empty: there is no such text.
std::string text_in(const nlohmann::ordered_json& object, const char* field);

/// Nothing: there is no such number.
std::optional<double> number_in(const nlohmann::ordered_json& object, const char* field);

} // namespace waggle
