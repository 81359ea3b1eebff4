#pragma once

#include <cstddef>
#include <string>

#include <nlohmann/json_fwd.hpp>

namespace waggle {

/// What an event says, by the sentence of its type: "Peer 03000000 left: silent, after 5.0 s".
/// Texts in it are not made harmless yet.
std::string event_text(const nlohmann::ordered_json& event);

/// "1 peer", "3 peers"
std::string plural(std::size_t n, const std::string& word);
/// "420 ms", "5.0 s", "12 min", "3.5 h"
std::string span_text(double ms);

} // namespace waggle
