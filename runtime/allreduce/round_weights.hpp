#pragma once

#include <cstddef>
#include <map>
#include <numeric>
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
                            const std::vector<double>& weights) {
    return weights.size() == contributors.size()
           && std::accumulate(weights.begin(), weights.end(), 0.0) == sum
           && reported_.try_emplace(reducer, weights).first->second == weights;
  }
  /// Our own list.
  void report_own(const std::vector<double>& weights) {
    reported_.insert_or_assign(self_, weights);
  }
  /// Another view begins. Forgets all reports if it has other contributors, and otherwise those of
  /// members that do not participate.
  void enter(bool other_contributors, member_set participants) {
    std::erase_if(reported_, [&](const auto& reported) {
      return other_contributors || !participants.contains(reported.first);
    });
  }

  /// The members at fault where the lists differ. If reducers report another weight of one member,
  /// that member sent them another; if of several or of us, the reducer lies. Sets `sum`.
  [[nodiscard]] member_set judge(member_set contributors) {
    auto known = told_;
    known[self_] = own_;
    member_set at_fault;
    // Of members that have told us nothing: what most reducers report.
    std::size_t position = 0;
    contributors.for_each([&](std::size_t member) {
      if (!known[member]) {
        std::map<double, std::size_t> reports;
        for (const auto& [reducer, reported] : reported_)
          ++reports[reported[position]];
        for (const auto& [weight, count] : reports)
          if (2 * count > reported_.size())
            known[member] = weight;
        if (!known[member])
          at_fault.insert(member);
      }
      ++position;
    });
    for (const auto& [reducer, reported] : reported_) {
      member_set differ;
      auto weight = reported.begin();
      contributors.for_each([&](std::size_t member) {
        if (known[member] && *known[member] != *weight)
          differ.insert(member);
        ++weight;
      });
      if (differ.empty() || reducer == self_)
        continue;
      bool one = differ.size() == 1 && !differ.contains(self_);
      at_fault.insert(one ? differ.lowest() : reducer);
    }
    sum = 0;
    contributors.for_each([&](std::size_t member) { *sum += known[member].value_or(0); });
    return at_fault;
  }
  /// Of the contributors. Nothing: not judged.
  std::optional<double> sum;

private:
  const std::size_t self_;
  const double own_;
  std::vector<std::optional<double>> told_;             // by member
  std::map<std::size_t, std::vector<double>> reported_; // of the contributors, by reducer
};

} // namespace waggle
