#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <set>

#include "runtime/allreduce/pledge_exchange.hpp"
#include "runtime/allreduce/round_state.hpp"

namespace waggle {

/// A reducer was sent something else than what was pledged, and says so before it answers for its
/// sums, by revealing its share of the key. Nobody can know which of the two lies, so the
/// contributor has to show, to the leader too, what it pledged:
///
///   reducer ─ challenges its own part ─► leader ─► contributors
///   contributor ─ its contribution, as evidence ─► reducer and leader
///   leader ─ as pledged? passes it on ─► reducer ─ sums again ─► all: the result once more
///          └ nothing, or something else: the contributor is at fault
///
/// Nobody sees what a leader contributes: the reducer accuses it after a while.
///
/// Not thread-safe.
class disputed_contributions {
public:
  /// All must outlive this. `settled`: the contributions to our parts are those that were pledged.
  disputed_contributions(round_state& round, pledge_exchange& pledges,
                         const by_view<digest>& shares, std::function<void()> settled)
    : round_(round), pledges_(pledges), shares_(shares), settled_(std::move(settled)) {}

  /// Who contributed something else than it pledged, by part of ours (pledge_exchange).
  void claim(const std::map<std::uint32_t, member_set>& wrong);
  /// A challenge of the part, in the current view. False: it is not of the part's reducer.
  bool on_challenge(std::size_t from, std::uint32_t part);
  /// Evidence for the current view. False: it is not of a contributor. Does not release the event.
  bool on_shown(std::size_t from, const wire::part& head, const payload& body);
  /// Whether a second result of a part is taken: it is its reducer's, who has not revealed its
  /// share. True once for each part and view.
  [[nodiscard]] bool may_correct(std::size_t from, const wire::part& head);
  void on_tick();
  /// A view begins.
  void enter();

private:
  struct dispute {
    member_set wrong; // they have not shown what they pledged
    steady_time since;
  };

  [[nodiscard]] bool is_answered_for(std::uint32_t part) const {
    return shares_.find(round_.parts().owner(part, round_.view()), round_.view().number) != nullptr;
  }
  void show(std::uint32_t part);
  void ask(std::uint32_t part);
  void witness(std::uint32_t part, const wire::part& head, const payload& body);
  void take(std::uint32_t part, const wire::part& head, const payload& body);
  void sum_again(std::uint32_t part);

  round_state& round_;
  pledge_exchange& pledges_;
  const by_view<digest>& shares_;
  const std::function<void()> settled_;
  // In the current view:
  std::map<std::uint32_t, dispute> ours_;      // by part that we reduce
  std::map<std::uint32_t, dispute> witnessed_; // of another reducer, if we lead
  std::set<std::uint32_t> early_;     // of another reducer, before all pledges are here, if we lead
  member_set disputing_;              // these reducers
  std::set<std::uint32_t> shown_;     // parts to which we have shown our contribution
  std::set<std::uint32_t> corrected_; // parts whose result was sent again
};

} // namespace waggle
