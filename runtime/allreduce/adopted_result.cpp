#include "runtime/allreduce/adopted_result.hpp"

namespace waggle {

bool holds_what_most_listed(std::uint32_t compared, const result_comparison& lists,
                            const round_view& adopted, const round_plan& plan, std::size_t self,
                            const result_terms& terms) {
  auto participants = adopted.participant_set();
  auto leader = leader_of(adopted.number, plan.members.size());
  if (!lists.has(leader, compared))
    return false;
  const auto& listed = lists.of(leader, compared);
  bool client = plan.members[self].mode == member_mode::client;
  for (std::size_t group = 0; group < listed.size(); ++group) {
    std::size_t holders = 0;
    participants.for_each([&](std::size_t member) {
      if (lists.has(member, compared) && lists.of(member, compared)[group] == listed[group])
        ++holders;
    });
    if (client ? holders < 2 : 2 * holders <= participants.size())
      return false;
  }
  return result_digest(terms, listed) == adopted.result;
}

} // namespace waggle
