#pragma once

#include <cstdint>
#include <string>

#include "runtime/core/time.hpp"

namespace waggle {

/// What a peer outside of any group knows when nobody is to be followed.
struct founding_situation {
  milliseconds waited{0};         // since it looks for a group
  milliseconds join_timeout{0};   // how long to look for the run; 0: it may begin one at once
  milliseconds settle_time{0};    // how long peers that were reached get to say that they train
  milliseconds split_grace{0};    // how long to look for a group that was lost
  bool client = false;            // others cannot reach us
  bool reducer_connected = false; // somebody who reduces for clients is connected
  bool lost_group = false;        // most of our group went silent, and is not back
  bool continue_on_split = true;
  bool addresses_known = true; // there is, or may be, somebody to ask for the run
  bool trainers_seen = false;  // others of the run train, or want to
  bool connected = false;      // to anybody
  bool has_work = false;       // our state is of the run
  bool may_start_alone = true;
};

/// What the operator is warned of when a peer begins alone.
enum class why_alone : std::uint8_t { not_alone, nobody_reached, no_reducer };

/// Whether to go on by ourselves, and if not, for whom or what we wait.
struct founding {
  bool now = false;
  std::string waiting_for; // empty with `now`
  why_alone alone = why_alone::not_alone;
};

/// Is it time to begin a group of our own? Waits are as long as there is evidence for somebody to
/// wait for, and each has an end but for two that the operator has asked for: `pause` on a split,
/// and not to start alone.
founding decide_founding(const founding_situation& now);

} // namespace waggle
