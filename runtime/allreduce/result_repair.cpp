#include "runtime/allreduce/result_repair.hpp"

namespace waggle {

result_repair::result_repair(const part_groups& groups, const result_terms& of,
                             const digest& wanted, member_set asked, std::vector<digest> ours)
  : all_(groups), of_(of), wanted_(wanted), asked_(asked), ours_(std::move(ours)) {
  for (std::size_t group = 0; group < all_.size(); ++group)
    missing_[group];
}

bool result_repair::add_list(std::size_t from, const std::vector<digest>& groups) {
  if (!asked_.contains(from) || groups.size() != all_.size()
      || result_digest(of_, groups) != wanted_) {
    asked_.erase(from);
    return false;
  }
  if (!groups_.empty())
    return true;
  groups_ = groups;
  for (std::size_t group = 0; group < groups_.size(); ++group) {
    if (groups_[group] == ours_[group])
      missing_.erase(group);
    else
      asked_.for_each([&](std::size_t sender) { (void)check(group, sender); });
  }
  return asked_.contains(from);
}

bool result_repair::wants(std::size_t from, std::uint32_t part) const {
  auto group = missing_.find(all_.group_of(part));
  if (!asked_.contains(from) || group == missing_.end())
    return false;
  auto sent = group->second.find(from);
  return sent == group->second.end() || !sent->second.parts.contains(part);
}

bool result_repair::add_part(std::size_t from, std::uint32_t part, double weight_sum,
                             std::shared_ptr<float_vector> values) {
  auto group = all_.group_of(part);
  auto& sent = missing_.at(group)[from];
  sent.weight_sum = weight_sum;
  sent.parts.emplace(part, std::move(values));
  return check(group, from);
}

bool result_repair::check(std::size_t group, std::size_t from) {
  auto senders = missing_.find(group);
  if (groups_.empty() || senders == missing_.end() || !senders->second.contains(from))
    return true;
  const auto& sent = senders->second.at(from);
  if (sent.parts.size() < all_[group].size())
    return true;
  auto of = of_;
  of.weight_sum = sent.weight_sum;
  auto got = group_digest(of, all_[group], [&](std::uint32_t index) {
    return std::span<const float>{*sent.parts.at(index)};
  });
  if (got != groups_[group]) {
    asked_.erase(from);
    senders->second.erase(from);
    return false;
  }
  weight_sum_ = sent.weight_sum;
  for (const auto& part : sent.parts)
    checked_.emplace_back(part);
  missing_.erase(senders);
  return true;
}

std::vector<std::pair<std::uint32_t, std::shared_ptr<float_vector>>> result_repair::take_checked() {
  return std::exchange(checked_, {});
}

} // namespace waggle
