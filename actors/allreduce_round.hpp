#pragma once

#include <map>
#include <memory>
#include <optional>
#include <vector>

#include <caf/all.hpp>

#include "actors/actors.hpp"
#include "actors/allreduce_part.hpp"
#include "actors/node_context.hpp"
#include "runtime/averaging/round_books.hpp"
#include "runtime/averaging/round_protocol.hpp"
#include "runtime/averaging/vector_pool.hpp"

namespace waggle {

struct round_config {
  /// A member whose contributions are awaited and who sends none of them for this long is given up;
  /// results are awaited twice as long. Raise it if peers are slow rather than dead: the rounds'
  /// faults show `stalled`.
  milliseconds stall_timeout{5'000};
  /// How long a new leader waits for the others' word.
  milliseconds takeover_timeout{2'000};
  /// The round ends by then, whatever happens.
  milliseconds deadline{60'000};
};

/// What a round is about.
struct round_order {
  round_plan plan; // validated; this peer is member `self_index`
  std::size_t self_index = 0;
  std::shared_ptr<const float_vector> values; // plan.elements values, finite
  double weight = 1;
};

/// To itself: look for members that stall, and at the clock.
struct check_round {};

struct allreduce_round_state {
  static inline const char* name = "allreduce-round";

  std::optional<round_protocol> protocol;
  std::optional<round_books> books;
  std::shared_ptr<float_vector> result;
  std::map<std::uint32_t, payload> late_parts;         // parts reduced again: not in `result` yet
  std::map<std::uint32_t, allreduce_part_actor> parts; // those that we reduce or did
  std::map<peer_id, std::size_t> members;
  std::vector<inbound_event> parked; // parts of a view that we have not heard of yet
  std::optional<double> weight_sum;  // of the current contributors, as the results say
  steady_time began;
  steady_time completed; // when the result of the view was complete here
  std::optional<steady_time> first_fault;
  std::uint64_t bytes_sent = 0;
  std::uint64_t bytes_received = 0;
  bool reported = false;
};

using allreduce_round_impl = allreduce_round_actor::extend<caf::reacts_to<check_round>>;

/// One round of one group: ships our parts, reduces those that are ours to reduce, collects the
/// result, obeys the round protocol, and reports once, to `listener`. Then it ends.
allreduce_round_impl::behavior_type
allreduce_round(allreduce_round_impl::stateful_pointer<allreduce_round_state> self,
                node_context ctx, round_config config, round_order order,
                std::shared_ptr<vector_pool> pool, switchboard_actor switchboard,
                round_listener_actor listener);

} // namespace waggle

WAGGLE_LOCAL(check_round)
