#include "runtime/matchmaking/group_plan.hpp"

#include <algorithm>

#include "runtime/core/try.hpp"

namespace waggle {

partition_terms terms_of(const matchmaking_config& config, std::optional<double> own_bandwidth) {
  bool reduces = config.mode != member_mode::client && own_bandwidth.value_or(1) > 0;
  return {config.parts, config.min_vector_size, reduces, {}};
}

result<formed_group> make_group_plan(const matchmaking_config& config, const group_purpose& purpose,
                                     const peer_record& self,
                                     const std::vector<group_search::seeker>& followers,
                                     const round_id& id) {
  formed_group group{{}, terms_of(config, purpose.bandwidth)};
  auto& [plan, terms] = group;
  plan.id = id;
  plan.prefix = config.prefix;
  plan.epoch = purpose.epoch;
  plan.members.push_back({self, config.mode});
  plan.gathered.push_back(purpose.gather);
  terms.bandwidths.emplace_back(purpose.bandwidth, config.bandwidth.has_value());
  for (const auto& follower : followers) {
    plan.members.push_back({follower.record, static_cast<member_mode>(follower.mode)});
    plan.gathered.push_back(follower.gather);
    terms.bandwidths.emplace_back(follower.bandwidth, follower.bandwidth_declared);
  }
  plan.elements = elements_of(purpose.codecs);
  plan.codecs = purpose.codecs;
  plan.reduce_by = config.reduce_by;
  plan.min_contributors = config.min_contributors;
  WAGGLE_TRY(partition,
             make_partition(plan, terms.bandwidths, config.parts, config.min_vector_size));
  plan.shares = std::move(partition->shares);
  plan.part_elements = partition->part_elements;
  WAGGLE_TRY(valid, validate_plan(plan));
  return group;
}

std::size_t bucket_place(std::size_t i, const round_plan& plan) {
  auto contributes = [](const round_member& m) { return m.mode != member_mode::auxiliary; };
  auto end = plan.members.begin() + static_cast<std::ptrdiff_t>(i);
  auto before = std::count_if(plan.members.begin(), end, contributes);
  if (contributes(plan.members[i]))
    return static_cast<std::size_t>(before);
  auto all = std::ranges::count_if(plan.members, contributes);
  return static_cast<std::size_t>(all) + i - static_cast<std::size_t>(before);
}

status check_group_plan(const matchmaking_config& config, const group_purpose& purpose,
                        const peer_id& self, const peer_id& from, const round_plan& plan) {
  WAGGLE_TRY(valid, validate_plan(plan));
  auto broken = [](const char* why) { return failure{ec::protocol_violation, why}; };
  if (plan.members[0].peer.id != from)
    return broken("its first member did not send it");
  auto mine = position_of(self, plan);
  if (mine == plan.members.size() || plan.members[mine].mode != config.mode)
    return broken("we are not one of its members");
  if (plan.gathered[mine] != purpose.gather)
    return broken("it changes the data that we gave to the group");
  if (plan.shares[mine] != 0 && purpose.bandwidth && *purpose.bandwidth <= 0)
    return broken("we announced that we never reduce");
  auto auxiliaries = static_cast<std::size_t>(std::ranges::count_if(
    plan.members, [](const round_member& m) { return m.mode == member_mode::auxiliary; }));
  auto target = std::min(config.target_group_size, round_members_max);
  if (plan.members.size() - auxiliaries > target || auxiliaries > target)
    return broken("its group is larger than the target size");
  if (config.extra
      && plan.members.size() - auxiliaries
           < std::max<std::size_t>(config.min_group_size, config.min_contributors))
    return broken("its group has too few members that contribute");
  if (plan.members.size() < plan.min_contributors)
    return broken("its group has fewer members than a round needs");
  if (plan.prefix != config.prefix || plan.codecs != purpose.codecs
      || plan.reduce_by != config.reduce_by
      || !may_be_part(plan.part_elements, plan.codecs, config.parts)
      || plan.min_contributors != config.min_contributors)
    return failure{ec::schema_mismatch, "it is for another vector"};
  if (plan.epoch != purpose.epoch)
    return failure{ec::epoch_mismatch, "it is for another epoch"};
  return done{};
}

} // namespace waggle
