#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "runtime/cli/findings.hpp"

namespace waggle {

/// How a peer left, as those say that were connected with it.
struct seen_leaving {
  std::int64_t t = 0; // Unix milliseconds
  std::string reason;
  bool lost = true; // without a goodbye
  std::uint64_t times = 1;
  std::string code{}; // of the reason
};
/// "at 14:02:11 (3 m 0 s ago), for the 3rd time: …". @param now Unix milliseconds.
std::string to_text(const seen_leaving& left, std::int64_t now);
/// Those of a document /api/v1/peers that left at most ten minutes before `now`, by identity:
/// `back` those that are members again, else the others. What is malformed is left out.
std::vector<std::pair<std::string, seen_leaving>> departures_in(const nlohmann::ordered_json& peers,
                                                                bool back, std::int64_t now);

/// What one peer answered, or why it did not.
struct asked_member {
  std::string id;                            // hexadecimal
  std::vector<endpoint> addresses;           // empty: a client
  std::string status{};                      // the JSON of /api/v1/status; empty: no answer
  failure why{};                             // if there was no answer, as from http_get
  bool connected = false;                    // with a peer that answered
  std::optional<seen_leaving> left = {};     // and is not back
  std::optional<seen_leaving> was_away = {}; // and is back
};
/// The members of a document /api/v1/peers, and those who left, at most `max` of each. @param where
/// the peer that has sent it.
std::vector<asked_member> members_in(const nlohmann::ordered_json& peers, const endpoint& where,
                                     std::size_t max, std::int64_t now);

/// @param now Unix milliseconds.
std::vector<finding> judge_swarm(const std::vector<asked_member>& members, std::int64_t now);

} // namespace waggle
