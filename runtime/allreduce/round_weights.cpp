#include "runtime/allreduce/round_weights.hpp"

#include <numeric>

namespace waggle {

bool round_weights::report(std::size_t reducer, member_set contributors, double sum,
                           const std::vector<double>& weights) {
  return weights.size() == contributors.size()
         && std::accumulate(weights.begin(), weights.end(), 0.0) == sum
         && reported_.try_emplace(reducer, weights).first->second == weights;
}

void round_weights::enter(bool other_contributors, member_set participants) {
  std::erase_if(reported_, [&](const auto& reported) {
    return other_contributors || !participants.contains(reported.first);
  });
}

member_set round_weights::judge(member_set contributors) {
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

} // namespace waggle
