#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "runtime/allreduce/open_checks.hpp"
#include "runtime/allreduce/pledge_exchange.hpp"
#include "runtime/allreduce/round_state.hpp"
#include "runtime/averaging/sum_checks.hpp"

namespace waggle {

/// Challenges of one member that are kept until the key that draws the checks is known here. The
/// first wrong part convicts a reducer, so more are not needed.
constexpr std::size_t early_challenges_max = 1024;

/// How the members of a round check each other's sums (runtime/averaging/README.md):
///
///   shares of all ─ draw ─ a part of ours ─► show its contributions to its checker
///                        └ we check ─ evidence ─► sum again ─ equal ─► checked ─► all: prepared
///                                   └ none, or another sum ─► challenge: it is shown to everybody
///
/// Not thread-safe.
class sum_audit {
public:
  struct events {
    /// Another sum is known to be right: perhaps all are.
    std::function<void()> checked;
    /// The owner of a part had sent us alone another sum: ours was replaced.
    std::function<void()> corrected;
  };

  /// `round` and `shares`, the key of the view, must outlive this.
  sum_audit(round_state& round, const by_view<digest>& shares, events on);

  [[nodiscard]] pledge_exchange& pledges() { return pledges_; }
  [[nodiscard]] const pledge_exchange& pledges() const { return pledges_; }

  /// Draws the checks, once the key of the view is known. True: the sums are right, as far as they
  /// are checked. False: something has to be awaited first, or is wrong.
  [[nodiscard]] bool sums_are_right();
  /// The members that have not reported yet that the sums that they check are right. If only they
  /// waited and others prepared, a wrong result would count as one that may have been committed.
  [[nodiscard]] member_set unchecked() const;

  /// A result that is taken as the part's. Keeps the digests of the contributions sent back in it.
  void relayed(std::size_t from, const wire::part& head, const payload& body);
  /// Another view has begun; transfer_state::enter says which results it keeps.
  void enter();

  /// `from` reports that all sums that it checks in the view are right. False: it is no news, or
  /// was refused.
  bool on_checked(std::size_t from, std::uint32_t view);
  void on_challenge(std::size_t from, const wire::round_challenge& what);
  /// A contribution that the owner of a part shows. Releases the event, now or later.
  void on_evidence(std::size_t from, const inbound_event& event, const wire::part& head);
  /// Looks for owners that show nothing.
  void on_tick();
  /// A view begins, or the round ends. Releases the events that are kept.
  void forget();

private:
  using early_part = std::pair<std::size_t, inbound_event>; // with its sender
  struct relayed_part {
    std::size_t from;
    std::map<std::size_t, digest> contributions; // by member
  };

  [[nodiscard]] std::size_t owner_of(std::uint32_t part) const {
    return round_.parts().owner(part, round_.view());
  }
  [[nodiscard]] bool is_sent_back(std::uint32_t part) const {
    return sends_contributions_back(round_.parts()[part].codec);
  }
  [[nodiscard]] bool may_challenge(std::uint32_t part, std::size_t member) const;
  /// The members that are shown a part because `challenger` has challenged it, first of all or not.
  [[nodiscard]] member_set audience(std::uint32_t part, std::size_t challenger, bool first) const;
  [[nodiscard]] bool judge();
  [[nodiscard]] bool relays_are_right();
  void draw();
  void advanced();
  void show(std::uint32_t part, member_set to, const part_reducer& contributions);
  void take_early(std::uint32_t part);
  void check(std::uint32_t part);
  void found_wrong(std::uint32_t part, const std::string& how);
  void challenge(std::uint32_t part);
  void challenged(std::size_t from, std::uint32_t part);

  round_state& round_;
  const by_view<digest>& shares_;
  const events on_;
  pledge_exchange pledges_;
  std::optional<std::vector<sum_check>> drawn_; // in the current view; so is what follows
  member_set checkers_;                         // of all that were drawn
  std::set<std::uint32_t> to_check_;            // drawn for us, and not known to be right
  steady_time drawn_at_;
  steady_time::duration evidence_limit_{}; // within which all evidence of a part is due
  open_checks open_;
  by_view<done> checked_by_; // by checker: its sums are right
  /// By part: evidence that arrived before the key was known, or the challenge.
  std::map<std::uint32_t, std::vector<early_part>> early_evidence_;
  std::map<std::uint32_t, member_set> challenges_; // by part: who challenged it
  /// By part sent back that was shown as it was pledged; if we lead, what was shown.
  std::map<std::uint32_t, std::optional<part_reducer>> proven_;
  std::map<std::size_t, std::set<std::uint32_t>> early_challenges_; // by member: parts
  std::deque<std::uint32_t> unchallenged_;                          // of wrong_
  std::optional<std::uint32_t> judging_; // the view whose sums are being judged, further up
  bool judge_again_ = false;             // they changed meanwhile
  // In all views:
  std::map<std::uint32_t, relayed_part> relayed_; // by part: sent back, and not compared yet
  std::map<std::uint32_t, std::size_t> wrong_;    // by part sent back otherwise: who did
  member_set lied_; // they sent back what was not pledged, and are not accused yet
};

} // namespace waggle
