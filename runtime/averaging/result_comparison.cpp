#include "runtime/averaging/result_comparison.hpp"

#include "runtime/core/check.hpp"

namespace waggle {

void result_comparison::add(std::size_t member, std::uint32_t number, std::vector<digest> groups) {
  auto known = lists_.find(member);
  if (known == lists_.end())
    lists_.emplace(member, list{number, std::move(groups)});
  else if (known->second.view < number)
    known->second = {number, std::move(groups)};
}

bool result_comparison::has(std::size_t member, std::uint32_t number) const {
  auto known = lists_.find(member);
  return known != lists_.end() && known->second.view == number;
}

const std::vector<digest>& result_comparison::of(std::size_t member, std::uint32_t number) const {
  WAGGLE_CHECK(has(member, number), std::to_string(member));
  return lists_.at(member).groups;
}

bool result_comparison::held_by(std::size_t most, member_set among, std::size_t member,
                                std::uint32_t number) const {
  if (!has(member, number))
    return false;
  const auto& listed = of(member, number);
  for (std::size_t group = 0; group < listed.size(); ++group) {
    std::size_t holders = 0;
    among.for_each([&](std::size_t other) {
      holders += has(other, number) && of(other, number)[group] == listed[group] ? 1 : 0;
    });
    if (holders < most)
      return false;
  }
  return true;
}

result_comparison::findings result_comparison::judge(
  std::uint32_t number, member_set among, std::size_t self,
  const std::function<std::optional<std::size_t>(std::size_t)>& reducer) const {
  findings out;
  const auto& ours = of(self, number);
  for (std::size_t group = 0; group < ours.size(); ++group) {
    std::map<digest, std::size_t> holders;
    among.for_each([&](std::size_t member) { ++holders[of(member, number)[group]]; });
    if (holders.size() == 1)
      continue;
    const digest* most = nullptr;
    for (const auto& [value, count] : holders)
      if (2 * count > among.size())
        most = &value;
    auto by = reducer(group);
    bool says_otherwise =
      by && among.contains(*by) && most != nullptr && of(*by, number)[group] != *most;
    if (by && (most == nullptr || says_otherwise))
      out.at_fault.insert(*by);
    out.we_hold_most = out.we_hold_most && most != nullptr && ours[group] == *most;
  }
  return out;
}

} // namespace waggle
