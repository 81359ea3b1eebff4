#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/averaging/patience.hpp"
#include "runtime/averaging/round_view.hpp"
#include "runtime/core/error.hpp"
#include "runtime/core/float_vector.hpp"
#include "runtime/core/ids.hpp"
#include "runtime/core/time.hpp"
#include "runtime/wire/messages.hpp"

namespace waggle {

/// When the parts of each member of a round arrived, as this peer saw it. Every reducer of a
/// butterfly sees this without a message: the slow member arrives last, and all others only wait.
/// A mark costs a few nanoseconds, because the clock was read for the part anyway. Not thread-safe.
struct round_marks {
  using time = std::chrono::nanoseconds; // since the round began here
  static constexpr time never{-1};
  struct span {
    time first = never;
    time last = never;

    void mark(time at) {
      if (first == never)
        first = at;
      last = at;
    }
  };
  struct member {
    peer_id peer;
    bool contributes = false;
    bool reduces = false;
    double weight = 0; // of its contribution to parts that we reduce; else 0
    /// Its contributions to the parts that we reduce; our own: when they were encoded.
    span contributions;
    /// Parts of the result that came from it; our own: when we had summed them.
    span results;
    /// When it said that it holds the result of the view that was decided; our own: when we did.
    time confirmed = never;
    std::uint64_t bytes_in = 0;  // bodies that it sent us
    std::uint64_t bytes_out = 0; // bodies that we sent it
  };

  steady_time began{};
  std::size_t self = 0; // index of this peer
  std::vector<member> members;

  void contribution(std::size_t from, steady_time now, std::size_t bytes) {
    members[from].contributions.mark(now - began);
    members[from].bytes_in += bytes;
  }
  void confirmed(std::size_t from, steady_time now) { members[from].confirmed = now - began; }
  void result(std::size_t from, steady_time now, std::size_t bytes) {
    members[from].results.mark(now - began);
    members[from].bytes_in += bytes;
  }
};

enum class round_outcome : std::uint8_t { complete = 0, shrunk = 1, failed = 2 };
constexpr std::string_view to_string(round_outcome x) {
  constexpr std::string_view names[]{"complete", "shrunk", "failed"};
  return names[static_cast<std::size_t>(x)];
}

/// How a round ended. With complete or shrunk, `values` is byte-equal on every member that finished
/// it, and so are round, contributors and weight_sum. With failed, nothing has changed on this
/// member.
struct round_report {
  struct fault {
    peer_id peer;
    ec reason = ec::none;
    /// Observed by this peer. False: reported by others, or by the member itself.
    bool seen = false;
    /// The member of an open group reported that it does not take part.
    bool left = false;
  };
  round_outcome outcome = round_outcome::failed;
  failure why{};                       // none unless failed or shrunk
  round_id round{};                    // zero if no group was found
  epoch_id epoch{};                    // of its plan
  std::string kind{};                  // averaging_config::kind; set by the averager
  std::vector<peer_id> contributors{}; // canonical order
  std::vector<peer_id> participants{}; // members that were not lost, auxiliaries included
  std::uint32_t group_size = 0;
  double weight_sum = 0;
  /// The weighted mean; null if failed. If Σ weights is 0: the caller's own vector (INV-4 in
  /// runtime/training/README.md).
  std::shared_ptr<const float_vector> values{};
  /// What each member gave in matchmaking, itself included, by peer; also for members that were
  /// lost.
  std::vector<std::pair<peer_id, std::string>> gathered{};
  double matchmaking_seconds = 0;
  double allreduce_seconds = 0;
  double agreement_seconds = 0; // the part of allreduce_seconds after the result was complete here
  double recovery_seconds = 0;  // from the first failure detected to the end; 0: none
  std::vector<fault> faults{};
  std::shared_ptr<const round_marks> marks{}; // null: nothing was sent in it
};

/// How a round ended, for the code that started it.
struct round_finished {
  round_report report;
  wire::round_promise promise; // what later takeover requests are answered with
  /// This member has reported at least once that it holds the result: others may have committed,
  /// whatever the outcome of the round is here.
  bool was_prepared = false;
};

/// The members of the round's plan that are in the next one: those whose vectors counted, and the
/// auxiliaries that were not lost.
member_set stayed_of(const round_plan& plan, const round_report& report);

/// For how long a complete round waited for each of its members, ourselves included, in the order
/// of the plan: for its contributions, its results, and its confirmation. Empty for other rounds,
/// and if this peer reduces nothing: then it does not see when the others contribute.
std::vector<member_wait> waits_in(const round_report& report);

/// The report of the round of a group of one: its mean is its only vector.
round_report report_of_one(const round_plan& plan, double weight,
                           std::shared_ptr<const float_vector> values);

/// One report of an epoch whose group averages in two rounds (runtime/codec/two_round_coding), both
/// of which were committed: that of the second round, with the cost of both, the size of the group
/// with which the first one began, and why it lost members.
///
/// The second mean is a function of the first one. If the first round had no mean (Σ weights is 0),
/// each member would decode the second with a vector of its own, so the epoch has no mean either
/// (INV-4), whatever weights the second round was given.
round_report report_of_two(const round_report& first, round_report second);

} // namespace waggle
