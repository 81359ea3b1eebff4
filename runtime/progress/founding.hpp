#pragma once

#include <string>

#include "runtime/core/time.hpp"

namespace waggle {

/// When a peer may begin a group of its own.
struct founding_options {
  milliseconds join_timeout{15'000}; // how long to look for the run; 0: it may begin one at once
  milliseconds settle_time{500};     // how long connected peers get to report that they train
  milliseconds split_grace{1'500};   // how long to look for a group that was lost
  bool continue_on_split = true;
  bool may_start_alone = false;
};

/// What a peer that is in no group knows, when there is no group to enter.
struct founding_situation : founding_options {
  milliseconds waited{0};         // since it began to look for a group
  milliseconds unheard{0};        // the first part of that, if nobody was connected in it
  bool client = false;            // others cannot reach us
  bool reducer_connected = false; // a peer that reduces for clients is connected
  bool lost_group = false;        // most of our group went silent and has not come back
  bool addresses_known = true;    // there are, or may be, peers to ask for the run
  bool trainers_seen = false;     // other peers of the run train, or want to
  bool connected = false;         // to any peer
  bool has_work = false;          // our state belongs to the run
};

/// Whether to begin a group of our own now.
struct founding {
  bool now = false;
  std::string why; // not now: what we wait for; now: a warning to the operator, or empty
};

/// Decides whether it is time to begin a group of our own. A wait lasts only as long as there is
/// evidence that a group may appear, and each wait ends, except for two that the operator has
/// requested: `pause` on a split, and not to start alone.
founding decide_founding(const founding_situation& now);

} // namespace waggle
