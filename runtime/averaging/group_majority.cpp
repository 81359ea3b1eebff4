#include "runtime/averaging/group_majority.hpp"

#include <algorithm>

#include "runtime/averaging/round_decision.hpp"
#include "runtime/crypto/digest.hpp"

namespace waggle {

bool keeps_majority(const round_plan& plan, member_set stayed) {
  std::size_t before = 0;
  std::size_t after = 0;
  bool first_stays = false;
  for (std::size_t i = 0; i < plan.members.size(); ++i) {
    if (plan.gathered[i] == newcomer_mark)
      continue;
    bool counts = stayed.contains(i) && plan.gathered[i] != returned_mark;
    if (before++ == 0)
      first_stays = counts;
    after += counts ? 1 : 0;
  }
  return 2 * after > before || (2 * after == before && first_stays);
}

bool leaves_it_to_newcomers(const round_plan& plan, member_set stayed, std::size_t member) {
  auto holds_a_state = [&](std::size_t i) {
    return plan.members[i].mode != member_mode::auxiliary && !has_just_entered(plan.gathered[i]);
  };
  auto rest = stayed;
  rest.erase(member);
  std::size_t holders = 0;
  std::size_t newcomers = 0;
  rest.for_each([&](std::size_t i) {
    holders += holds_a_state(i) ? 1 : 0;
    newcomers += has_just_entered(plan.gathered[i]) ? 1 : 0;
  });
  return holds_a_state(member) && is_quorum(rest, plan.members.size()) && holders < newcomers;
}

std::uint32_t fewest_contributors(const round_plan& plan) {
  std::uint32_t known = 0;
  for (std::size_t i = 0; i < plan.members.size(); ++i)
    known +=
      plan.members[i].mode != member_mode::auxiliary && !has_just_entered(plan.gathered[i]) ? 1 : 0;
  return std::max(std::min(plan.min_contributors, known), std::uint32_t{1});
}

std::optional<peer_id> successor_in(const round_plan& plan) {
  for (std::size_t i = 1; i < plan.members.size(); ++i)
    if (plan.shares[i] > 0 && plan.gathered[i] != newcomer_mark)
      return plan.members[i].peer.id;
  return std::nullopt;
}

digest forked(const digest& parent, const round_id& round) {
  if (parent.is_zero())
    return parent;
  return sha256_stream{}.add("waggle fork").add(parent.view()).add(round.view()).finish();
}

} // namespace waggle
