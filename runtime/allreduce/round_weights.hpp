#pragma once

#include <cstddef>
#include <map>
#include <optional>
#include <vector>

#include "runtime/averaging/round_view.hpp"

namespace waggle {

/// The weights of a round's contributors: those that they sent us, and those that the reducers
/// report to have summed with. All parts must be sums over the same weights. Not thread-safe.
class round_weights {
public:
  /// @param own this member's weight.
  round_weights(std::size_t members, std::size_t self, double own)
    : self_(self), own_(own), told_(members) {}

  /// The weight that `member` sent us with its contribution to a part of ours.
  [[nodiscard]] const std::optional<double>& told(std::size_t member) const {
    return told_[member];
  }
  void tell(std::size_t member, double weight) { told_[member] = weight; }
  /// What `reducer` summed with, by contributor, and their sum. False: a reducer has one such list
  /// for all of its parts, with a weight of each of `contributors`.
  [[nodiscard]] bool report(std::size_t reducer, member_set contributors, double sum,
                            const std::vector<double>& weights);
  /// Our own list.
  void report_own(const std::vector<double>& weights) {
    reported_.insert_or_assign(self_, weights);
  }
  /// Another view begins. Forgets all reports if it has other contributors, and otherwise those of
  /// members that do not participate.
  void enter(bool other_contributors, member_set participants);

  /// The members at fault where the lists differ. If reducers report another weight of one member,
  /// that member sent them another; if of several or of us, the reducer lies. Sets `sum`.
  [[nodiscard]] member_set judge(member_set contributors);
  /// Of the contributors. Nothing: not judged.
  std::optional<double> sum;

private:
  const std::size_t self_;
  const double own_;
  std::vector<std::optional<double>> told_;             // by member
  std::map<std::size_t, std::vector<double>> reported_; // of the contributors, by reducer
};

} // namespace waggle
