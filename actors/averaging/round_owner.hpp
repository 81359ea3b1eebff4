#pragma once

#include <string_view>
#include <vector>

#include <caf/all.hpp>

#include "actors/actors.hpp"
#include "actors/averaging/allreduce_round.hpp"
#include "actors/node_context.hpp"
#include "runtime/allreduce/averaging_config.hpp"

namespace waggle {

/// To itself: check the timeouts of the round that runs.
struct check_rounds {};
/// To itself: forget old rounds.
struct forget_old {};

/// The rounds of one averager, one after another: spawns and monitors the actor of each, lets it
/// check its timeouts, and counts its report. The workers that all of them use live as long as the
/// averager. Used by the averager's handlers only.
class round_owner {
public:
  /// What an averager receives on behalf of its round_owner, besides the round's messages.
  using self_messages = caf::typed_actor<caf::reacts_to<check_rounds>, caf::reacts_to<forget_old>>;

  round_owner(const node_context& ctx, const averaging_config& config)
    : ctx_(ctx), config_(config) {}

  /// Spawns the workers. To be called by the averager once it runs.
  void begin(caf::scheduled_actor& self);
  void end();

  /// Starts the round. REQUIRES: none runs. Its deadline is cut to `time_left`.
  void start(caf::scheduled_actor& self, round_request what, milliseconds time_left,
             const switchboard_actor& switchboard);
  /// The report has arrived, or will not.
  void forget() { round_ = nullptr; }

  [[nodiscard]] bool runs() const { return static_cast<bool>(round_); }
  /// Whether `source` is the actor of the round that runs.
  [[nodiscard]] bool is_round(const caf::actor_addr& source) const;

  void cancel(failure why, bool unless_prepared = false);
  void report_lost(const peer_disconnected& msg);
  void on_check(caf::scheduled_actor& self);
  void on_forget_old(caf::scheduled_actor& self);
  /// The averager itself ends, for `why`.
  void exit(caf::scheduled_actor& self, const caf::error& why);

  void count(const round_report& report) const;

private:
  void check_later(caf::scheduled_actor& self) const;

  const node_context& ctx_;
  const averaging_config& config_;
  std::vector<compute_worker_actor> workers_;
  allreduce_round_actor round_;
  std::string_view unchecked_; // why the last such group checked nothing; logged
  bool ticking_ = false;       // a check_rounds is scheduled
};

} // namespace waggle
