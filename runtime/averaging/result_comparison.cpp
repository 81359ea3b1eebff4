#include "runtime/averaging/result_comparison.hpp"

namespace waggle {

bool is_held_by(const result_lists& lists, std::size_t most, member_set among, std::size_t member,
                std::uint32_t number) {
  const auto* listed = lists.find(member, number);
  if (listed == nullptr)
    return false;
  for (std::size_t group = 0; group < listed->size(); ++group) {
    std::size_t holders = 0;
    lists.members(among, number).for_each([&](std::size_t other) {
      holders += lists.of(other, number)[group] == (*listed)[group] ? 1 : 0;
    });
    if (holders < most)
      return false;
  }
  return true;
}

result_findings
compare_results(const result_lists& lists, std::uint32_t number, member_set among, std::size_t self,
                const std::function<std::optional<std::size_t>(std::size_t)>& reducer) {
  result_findings out;
  const auto& ours = lists.of(self, number);
  for (std::size_t group = 0; group < ours.size(); ++group) {
    std::map<digest, std::size_t> holders;
    among.for_each([&](std::size_t member) { ++holders[lists.of(member, number)[group]]; });
    if (holders.size() == 1)
      continue;
    const digest* most = nullptr;
    for (const auto& [value, count] : holders)
      if (2 * count > among.size())
        most = &value;
    auto by = reducer(group);
    bool says_otherwise =
      by && among.contains(*by) && most != nullptr && lists.of(*by, number)[group] != *most;
    if (by && (most == nullptr || says_otherwise))
      out.at_fault.insert(*by);
    out.we_hold_most = out.we_hold_most && most != nullptr && ours[group] == *most;
  }
  return out;
}

} // namespace waggle
