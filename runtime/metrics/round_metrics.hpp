#pragma once

#include "runtime/metrics/metric.hpp"

namespace waggle {

/// Searches for a group, and the rounds of groups.
class round_metrics {
  metric_registry& in_;
  using sum_outcome = label<"outcome", "right", "wrong">;
  struct found : some_codes<4, "outcome", ec::none, ec::too_few, ec::timeout, ec::nobody_declared,
                            ec::schema_mismatch, ec::epoch_mismatch, ec::wrong_group_key,
                            ec::clock_skew, ec::unreachable, ec::cancelled, ec::shutting_down> {
    using some_codes::some_codes;
    [[nodiscard]] static std::string_view text(std::size_t number) {
      return number == 0 ? "formed" : some_codes::text(number);
    }
  };

public:
  explicit round_metrics(metric_registry& registry) : in_(registry) {}

  /// A peer averages vectors of one kind; their series are exported when it shows its rounds.
  using kind = some_words<0, "kind", "gradients", "params", "progress", "vector">;
  using outcome = label<"outcome", "complete", "shrunk", "failed">;
  using fault = label<"fault", "silent", "wrong", "left", "slow">;

  counter<found> searches{in_, "waggle_matchmaking_rounds_total",
                          "Searches for a group by outcome."};
  histogram<> search_durations{in_, "waggle_matchmaking_duration_seconds",
                               "Time until the group was complete.", short_round_seconds};
  histogram<> group_sizes{in_, "waggle_matchmaking_group_size",
                          "Members of the groups that formed.", small_counts};
  counter<some_codes<0, "reason", ec::not_looking, ec::not_a_leader, ec::bad_expiration,
                     ec::duplicate_peer, ec::group_full, ec::wrong_group_key, ec::schema_mismatch,
                     ec::epoch_mismatch, ec::clock_skew, ec::excluded, ec::overloaded,
                     ec::not_ready, ec::unreachable, ec::timeout, ec::protocol_violation>>
    count_join_refused{in_, "waggle_matchmaking_joins_refused_total",
                       "Requests to join that this peer refused, by reason."};
  counter<kind, outcome> rounds{in_, "waggle_averaging_rounds_total",
                                "Rounds by kind and outcome."};
  histogram<kind> round_durations{in_, "waggle_averaging_round_duration_seconds",
                                  "Time of an all-reduce that did not fail, without matchmaking.",
                                  short_round_seconds};
  gauge<kind> round_contributors{in_, "waggle_averaging_contributors",
                                 "Contributors of the last round."};
  counter<label<"phase", "search", "contributions", "results", "agreement">> count_round_phase{
    in_, "waggle_averaging_phase_seconds_total",
    "Time of rounds by phase: the search for a group; until the last contribution to our parts was "
    "here; until the result was complete; until it was agreed on."};
  counter<> count_part{in_, "waggle_averaging_chunks_total", "Parts that this peer received."};
  histogram<> recovery_durations{in_, "waggle_averaging_recovery_duration_seconds",
                                 "From the first failure in a round to its end.", round_seconds};
  counter<some_codes<11, "reason", ec::timeout, ec::peer_lost, ec::stalled, ec::protocol_violation,
                     ec::non_finite, ec::bad_weight, ec::wrong_shape, ec::implausible_norm,
                     ec::unequal_results, ec::bad_signature, ec::wrong_sum, ec::shutting_down,
                     ec::unreachable, ec::overloaded, ec::not_looking, ec::excluded>>
    count_peer_fault{in_, "waggle_averaging_peer_faults_total",
                     "Members given up in a round, by reason."};
  counter<sum_outcome> checked_parts{
    in_, "waggle_averaging_checked_parts_total",
    "Parts of other reducers that this peer summed again, by outcome."};
  counter<fault> count_exclusion{in_, "waggle_averaging_exclusions_total",
                                 "Times that a member was kept out of later groups, by its fault."};
  gauge<kind> set_excluded_peers{in_, "waggle_averaging_excluded_peers",
                                 "Peers that are kept out of this peer's groups now."};
  gauge<> set_sent_values_ratio{
    in_, "waggle_averaging_sent_values_ratio",
    "Values averaged per value of the vector; below 1 with --low-rank."};
  gauge<> set_share_ratio{in_, "waggle_averaging_share_ratio",
                          "Share of the vector that this peer reduces."};

  void count_matchmaking(ec outcome /*none: formed*/, double seconds, double group_size) {
    searches(outcome);
    if (outcome != ec::none)
      return;
    search_durations(seconds);
    group_sizes(group_size);
  }
  /// Exports the rounds of this kind as zeros, before the first one.
  void show_rounds(kind of) {
    for (std::size_t i = 0; i < outcome::size; ++i)
      rounds.show(of, outcome{i});
    round_durations.show(of);
    round_contributors(of, 0);
  }
  /// Also sets the contributors gauge, and observes the duration of a round that did not fail.
  void count_round(kind of, outcome how, double seconds, double contributors,
                   double recovery_seconds) {
    rounds(of, how);
    if (how.number() != outcome{"failed"}.number())
      round_durations(of, seconds);
    round_contributors(of, contributors);
    if (recovery_seconds > 0)
      recovery_durations(recovery_seconds);
  }
  void count_check(bool right) {
    checked_parts(right ? sum_outcome{"right"} : sum_outcome{"wrong"});
  }
};

} // namespace waggle
