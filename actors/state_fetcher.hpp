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
  /// How long a donor may take to offer a state, which it may have to copy from its device first.
  milliseconds open_timeout{30'000};
  /// A donor that delivers no chunk for this long is given up for the next one. Raise it on links
  /// that need longer for one chunk.
  milliseconds chunk_timeout{10'000};
};

/// To itself: the whole download has timed out.
struct fetch_expired {};
/// To itself: check whether this donor still delivers.
struct check_donor {
  std::uint64_t attempt = 0;
};

using state_fetcher_base =
  state_fetcher_actor::extend<caf::reacts_to<fetch_expired>, caf::reacts_to<check_donor>>::base;

/// Downloads one state from the first donor that delivers it whole, and checks it. If a donor is
/// lost, the next one continues with the chunks that are missing. Ends itself after its answer.
class state_fetcher final : public state_fetcher_base {
public:
  state_fetcher(caf::actor_config& cfg, node_context ctx, fetch_config config,
                switchboard_actor switchboard);

  const char* name() const override { return "state-fetcher"; }
  void on_exit() override {
    promise_ = {};
    switchboard_ = nullptr;
  }

protected:
  behavior_type make_behavior() override;

private:
  caf::result<fetched_state> fetch(const fetch_state& msg);
  void next_donor();
  void leave_donor(const failure& why);
  void on_offer(const wire::state_header& header);
  void check_deadline(std::uint64_t attempt);
  void ask();
  void on_chunk(const peer_answer& answer, steady_time asked);
  void end(const failure& why);

  const node_context ctx_;
  const fetch_config config_;
  switchboard_actor switchboard_;

  bool busy_ = false;
  fetch_state what_;
  state_download download_;
  std::deque<peer_record> donors_; // still to try
  peer_record donor_;
  std::uint64_t attempt_ = 0; // generation: answers of earlier donors are ignored
  steady_time last_chunk_;    // when the donor last delivered something
  bool resumed_ = false;      // parts of it came from another donor
  steady_time began_;
  failure last_{ec::no_donor, "no donor was named"};
  caf::typed_response_promise<fetched_state> promise_;
};

} // namespace waggle

WAGGLE_LOCAL(fetch_expired)
WAGGLE_LOCAL(check_donor)
