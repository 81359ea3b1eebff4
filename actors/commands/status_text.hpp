#pragma once

#include <optional>
#include <string>

#include <nlohmann/json_fwd.hpp>

namespace waggle {

/// Nothing if `text` is no JSON, or is nested deeper than any document of ours: copying and writing
/// it would take as many stack frames.
std::optional<nlohmann::ordered_json> parse_document(const std::string& text);

/// A peer's documents (/api/v1/status and the list in /api/v1/peers) as people read them: a line
/// per field, then a table of the peers. Whoever answers need not be a peer of this version: fields
/// may be missing, unknown or of another kind; all are shown, in bounded length, as printable
/// ASCII.
std::string status_text(const nlohmann::ordered_json& document,
                        const nlohmann::ordered_json& peers);

} // namespace waggle
