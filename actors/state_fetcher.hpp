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
  /// For a donor to offer a state, which it may have to copy from its device first.
  milliseconds open_timeout{30'000};
  /// A donor that delivers no chunk for this long is given up for the next one. Raise it on links
  /// that need longer for one chunk.
  milliseconds chunk_timeout{10'000};
};

struct state_fetcher_state {
  static inline const char* name = "state-fetcher";

  std::optional<state_download> download;
  fetch_state what;
  std::deque<peer_record> donors; // still to try
  peer_record donor;
  std::uint64_t attempt = 0; // generation: late answers of earlier donors are ignored
  steady_time heard;         // when the donor last delivered something
  bool resumed = false;      // chunks came from more than one donor
  steady_time began;
  failure last{ec::no_donor, "no donor was named"};
  caf::typed_response_promise<fetched_state> promise;
  bool busy = false;
};

/// To itself: the deadline of the whole download has passed.
struct fetch_expired {};
/// To itself: check whether this donor still delivers.
struct check_donor {
  std::uint64_t attempt = 0;
};
using state_fetcher_impl =
  state_fetcher_actor::extend<caf::reacts_to<fetch_expired>, caf::reacts_to<check_donor>>;

/// Downloads one state, complete and verified, from the first donor that delivers it, and resumes
/// at the next donor if one is lost. Ends itself after its answer.
state_fetcher_impl::behavior_type
state_fetcher(state_fetcher_impl::stateful_pointer<state_fetcher_state> self, node_context ctx,
              fetch_config config, switchboard_actor switchboard);

} // namespace waggle

WAGGLE_LOCAL(fetch_expired)
WAGGLE_LOCAL(check_donor)
