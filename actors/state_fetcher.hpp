#pragma once

#include <deque>
#include <optional>

#include <caf/all.hpp>

#include "actors/actors.hpp"
#include "actors/node_context.hpp"
#include "runtime/state/state_download.hpp"

namespace waggle {

struct fetch_config {
  state_download::options download;
  /// For a donor to offer a state, which it may have to copy out of its device first.
  milliseconds open_timeout{30'000};
  /// A donor that does not deliver a chunk for this long is left for the next one.
  milliseconds chunk_timeout{10'000};
};

struct state_fetcher_state {
  static inline const char* name = "state-fetcher";

  std::optional<state_download> download;
  fetch_state what;
  std::deque<peer_record> donors; // still to try
  peer_record donor;
  std::uint64_t attempt = 0; // generation: answers of donors that we left do not count
  bool resumed = false;
  steady_time began;
  std::uint64_t bytes = 0;
  failure last{ec::no_donor, "nobody was named"};
  caf::typed_response_promise<fetched_state> promise;
  bool busy = false;
};

/// To itself: the whole download's time is up.
struct fetch_expired {};
using state_fetcher_impl = state_fetcher_actor::extend<caf::reacts_to<fetch_expired>>;

/// Downloads one state from the first donor that delivers it, whole and checked, going on at the next
/// donor where one is lost. Ends itself after its answer.
state_fetcher_impl::behavior_type
state_fetcher(state_fetcher_impl::stateful_pointer<state_fetcher_state> self, node_context ctx,
              fetch_config config, switchboard_actor switchboard);

} // namespace waggle

WAGGLE_LOCAL(fetch_expired)
