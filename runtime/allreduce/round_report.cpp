#include "runtime/allreduce/round_report.hpp"

#include <algorithm>

namespace waggle {

member_set stayed_of(const round_plan& plan, const round_report& report) {
  member_set stayed;
  for (std::size_t i = 0; i < plan.members.size(); ++i) {
    const auto& m = plan.members[i];
    const auto& named =
      m.mode == member_mode::auxiliary ? report.participants : report.contributors;
    if (std::find(named.begin(), named.end(), m.peer.id) != named.end())
      stayed.insert(i);
  }
  return stayed;
}

round_report report_of_one(const round_plan& plan, double weight,
                           std::shared_ptr<const float_vector> values) {
  round_report report;
  report.outcome = round_outcome::complete;
  report.round = plan.id;
  report.epoch = plan.epoch;
  report.contributors = report.participants = {plan.members.front().peer.id};
  report.group_size = 1;
  report.weight_sum = weight;
  report.values = std::move(values);
  return report;
}

} // namespace waggle
