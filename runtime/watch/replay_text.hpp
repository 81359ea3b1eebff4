#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/core/result.hpp"
#include "runtime/watch/timeline.hpp"

namespace waggle {

/// What of a timeline is wanted.
struct replay_choice {
  std::string only;       // a group of event_types; empty: what matters
  std::int64_t since = 0; // Unix milliseconds
};

/// Whether this line is one of them; of problems, also rounds and states that did not succeed.
bool is_wanted(const replay_choice& how, const logged_event& event);

/// A timeline for people: the sums, then lines in order, each round once. Of a whole run the lines
/// are fewer than 200, however long it was: epochs and rounds by spans of time, and what several
/// peers say, or what happens again and again, once. So are problems; the other groups have a line
/// for each event. Texts in it are not made harmless yet.
std::vector<std::string> replay_text(const timeline& all, const replay_choice& how);

/// "02:00", "02:00:30" (the one that is in these times, or next to them) or "2026-11-29 02:00", in
/// local time, as Unix milliseconds. Fails with ec::bad_config, also if nothing comes after it.
result<std::int64_t> time_within(std::string_view text, std::int64_t from, std::int64_t to);

} // namespace waggle
