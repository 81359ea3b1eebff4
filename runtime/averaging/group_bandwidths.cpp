#include "runtime/averaging/group_bandwidths.hpp"

#include <algorithm>
#include <utility>

#include "runtime/averaging/group_majority.hpp"

namespace waggle {

void group_bandwidths::assign(const round_plan& plan, const member_bandwidths& all) {
  clear();
  for (std::size_t i = 0; i < std::min(all.size(), plan.members.size()); ++i)
    set(plan.members[i].peer.id, all[i]);
}

bool group_bandwidths::report(const peer_id& who, std::optional<double> measured) {
  auto& known = known_[who];
  if (known.bytes_per_second == 0.0 || (known.declared && measured != 0.0))
    return false;
  known = measured;
  return true;
}

member_bandwidth group_bandwidths::of(const peer_id& who) const {
  auto known = known_.find(who);
  return known == known_.end() ? member_bandwidth{} : known->second;
}

member_bandwidths group_bandwidths::of(const round_plan& plan) const {
  member_bandwidths all;
  for (std::size_t i = 0; i < plan.members.size(); ++i) {
    const auto& who = plan.members[i].peer.id;
    bool left_out = plan.shares[i] == 0 && plan.gathered[i] != newcomer_mark && !knows(who);
    all.push_back(left_out ? member_bandwidth{0.0} : of(who));
  }
  return all;
}

std::optional<vector_partition> group_bandwidths::better(const round_plan& plan,
                                                         partition_terms terms) const {
  terms.bandwidths = of(plan);
  return better_partition(plan, terms);
}

bool own_bandwidth::update(steady_time now) {
  if (!estimator_)
    return false;
  auto known = estimator_->bytes_per_second(now);
  return std::exchange(reported_, known) != known;
}

} // namespace waggle
