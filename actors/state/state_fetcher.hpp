#pragma once

#include <deque>
#include <optional>

#include <caf/all.hpp>

#include "actors/actors.hpp"
#include "actors/node_context.hpp"
#include "runtime/state/state_download.hpp"
#include "runtime/state/state_vote.hpp"

namespace waggle {

struct fetch_config {
  state_download::options download;
  /// How long a donor may take to offer a state, which it may have to copy from its device first.
  milliseconds open_timeout{30'000};
  /// Not `none`: takes only a state that more than half of the donors offer.
  state_comparison compare = state_comparison::none;
  /// Compared offers: donors differ by rounding. Takes one of them if no state is that of most.
  bool rounded = false;
  /// Compared offers: how long the first donors may take before the others are asked, too.
  milliseconds offer_patience{1'000};
  /// Not null: receives the donors that offered another state than most, one that is too large, or
  /// other bytes than they offered. Complete once the fetcher has answered.
  std::shared_ptr<std::vector<peer_id>> suspects;
  /// A donor that delivers no chunk for this long is given up for the next one. Raise it on links
  /// that need longer for one chunk.
  milliseconds chunk_timeout{10'000};
  /// How long the pace of a donor is measured. One at whose pace the download would not end by its
  /// deadline is given up for another one, and this time doubles.
  milliseconds pace_time{10'000};
  /// Not null: receives the donors that were too slow for the deadline. Complete once the fetcher
  /// has answered.
  std::shared_ptr<std::vector<peer_id>> slow;
};

/// To itself: the whole download has timed out.
struct fetch_expired {};
/// To itself: the donors that were asked for an offer take their time.
struct offers_late {};
/// To itself: check whether this donor still delivers.
struct check_donor {
  std::uint64_t attempt = 0;
};

using state_fetcher_base =
  state_fetcher_actor::extend<caf::reacts_to<fetch_expired>, caf::reacts_to<offers_late>,
                              caf::reacts_to<check_donor>>::base;

/// Downloads one state from the first donor that delivers it whole, and checks it. With
/// fetch_config::compare, asks several donors for their offers first, and downloads only the state
/// that most of them offer. If a donor is lost, or too slow, the next one continues with the chunks
/// that are missing. If chunks of several donors do not make up the state, it is downloaded again
/// from the last of them alone. Ends itself after its answer.
/// Counts downloads that fail, also those that its caller ends; whoever uses the state counts the
/// others, because only it knows whether this is the state that was wanted.
class state_fetcher final : public state_fetcher_base {
public:
  state_fetcher(caf::actor_config& cfg, node_context ctx, fetch_config config,
                switchboard_actor switchboard);

  const char* name() const override { return "state-fetcher"; }
  void on_exit() override;

protected:
  behavior_type make_behavior() override;

private:
  caf::result<fetched_state> fetch(const fetch_state& msg);
  void ask_for_offers();
  void on_offers();
  [[nodiscard]] status check(const peer_id& donor, const state_offer& offer) const;
  void suspect(const peer_id& donor, ec code, std::string_view why) const;
  void log_caused(spdlog::level::level_enum level, const std::string& what) const;
  void next_donor();
  void leave_donor(const failure& why);
  void on_offer(const state_offer& offer);
  void start_over(const state_offer& offer);
  void check_deadline(std::uint64_t attempt);
  [[nodiscard]] bool is_too_slow();
  void leave_slow_donor();
  void ask();
  void on_chunk(const peer_answer& answer, steady_time asked);
  [[nodiscard]] status check_parameters(const byte_source& state, const digest& offered) const;
  void end(const failure& why, std::string_view outcome = "failed");

  const node_context ctx_;
  const fetch_config config_;
  switchboard_actor switchboard_;

  bool busy_ = false;
  caf::actor_addr caller_;
  fetch_state what_;
  state_download download_;
  std::deque<peer_record> donors_;      // still to try
  std::optional<state_vote> vote_;      // none: offers are not compared
  std::deque<state_vote::vote> voters_; // for the state that was chosen, still to try
  peer_record donor_;
  std::uint64_t attempt_ = 0; // generation: answers of earlier donors are ignored
  steady_time last_chunk_;    // when the donor last delivered something
  milliseconds pace_time_;    // for this donor
  steady_time paced_since_;   // its pace is measured since then
  std::uint64_t paced_ = 0;   // what it has delivered since then. Bytes
  bool resumed_ = false;      // parts of it came from another donor
  steady_time began_;
  failure last_{ec::no_donor, "no donor was named"};
  caf::typed_response_promise<fetched_state> promise_;
};

} // namespace waggle
