#pragma once

#include <cstddef>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "actors/messages.hpp"
#include "actors/node_context.hpp"
#include "runtime/allreduce/round_report.hpp"
#include "runtime/averaging/fault_memory.hpp"
#include "runtime/averaging/newcomer_hosts.hpp"
#include "runtime/averaging/patience.hpp"
#include "runtime/averaging/round_plan.hpp"

namespace waggle {

/// What one averager remembers of the members of its rounds (fault_memory) and of the hosts of
/// newcomers, with its log lines and metrics. Used by the averager's handlers only.
class fault_watch {
public:
  /// @param kind the `kind` label of the averager's rounds.
  fault_watch(const node_context& ctx, const std::string& kind) : ctx_(ctx), kind_(kind) {}

  /// A round of this plan begins. `open_group`: see round_request.
  void begin_round(const round_plan& plan, bool open_group = false);
  /// A link is down. What its peer did not send in the round that runs is no fault of it.
  void on_disconnected(const peer_disconnected& msg, steady_time now);
  /// The round has ended. Only what this peer noticed itself counts, and what a member said of
  /// itself: a member that accuses others can cost them a round, not their place. Members that the
  /// round was decided with are not at fault. If it failed here because the others went on, or half
  /// of the members were silent, nobody is blamed for silence: this peer may have been suspended or
  /// cut off, and then all others are silent to it. So of two members neither blames the other one.
  /// Members without a link are told to node_context::unlinked.
  void on_round(const round_report& report, steady_time now);

  /// Which members the round that has begun does not wait for (patience). Of open groups only.
  [[nodiscard]] member_set slow_in(const round_plan& plan) const;

  /// Why this peer at `host` (empty: not known) may not enter our group now; ec::none: it may.
  [[nodiscard]] ec refuses(const peer_id& peer, const std::string& host, std::size_t group_size,
                           steady_time now) const;
  /// It enters with the next plan.
  void accepted(const peer_id& peer, const std::string& host);
  [[nodiscard]] std::vector<peer_id> excluded(std::size_t group_size, steady_time now) const {
    return memory_.excluded(group_size, now);
  }
  /// Sets the gauge. `group_size` as above. To be called regularly, because exclusions end.
  void show(std::size_t group_size, steady_time now) const;

private:
  void learn_patience(const round_report& report);
  void judge_newcomers(const round_report& report, steady_time now);
  [[nodiscard]] bool may_blame_silence(const round_report& report) const;
  void tell_unlinked(const round_report& report) const;

  const node_context& ctx_;
  const std::string& kind_;
  fault_memory memory_;
  patience patience_;
  newcomer_hosts hosts_;
  std::set<peer_id> slow_;                  // in the round that runs, or the last one
  std::optional<steady_time> began_;        // the last complete round, here
  std::map<peer_id, round_member> members_; // of the round that runs, or of the last one
  bool leads_ = false;                      // this peer leads it
  /// Those that have not finished a round of their open group. They can be made up, so it says
  /// nothing about us how many of them are silent.
  std::set<peer_id> newcomers_;
  std::set<peer_id> lost_; // those whose link was lost since it began
};

} // namespace waggle
