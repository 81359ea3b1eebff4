#include "runtime/allreduce/round_report.hpp"

#include <algorithm>
#include <optional>

#include "runtime/core/median.hpp"

namespace waggle {

namespace {

/// Seconds of one step of a round, by member; nothing: not seen.
using step_times = std::vector<std::optional<double>>;

double median_of_others(const step_times& all, std::size_t but) {
  std::vector<double> values;
  for (std::size_t i = 0; i < all.size(); ++i)
    if (i != but && all[i])
      values.push_back(*all[i]);
  return values.empty() ? 0 : upper_median(std::move(values));
}

/// From `since` on; what came before took no time.
step_times times_since(round_marks::time since, const round_marks& marks,
                       round_marks::time (*of)(const round_marks::member&)) {
  step_times out;
  for (const auto& m : marks.members)
    out.push_back(of(m) == round_marks::never
                    ? std::nullopt
                    : std::optional{std::max(0.0, seconds_of(of(m) - since))});
  return out;
}

} // namespace

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

std::vector<member_wait> waits_in(const round_report& report) {
  std::vector<member_wait> out;
  if (!report.marks || report.outcome != round_outcome::complete)
    return out;
  const auto& marks = *report.marks;
  if (!marks.members[marks.self].reduces)
    return out;
  auto contributed = round_marks::time{0}; // by all
  for (const auto& m : marks.members)
    contributed = std::max(contributed, m.contributions.last);
  auto held = std::max(contributed, marks.members[marks.self].confirmed); // the result, by us
  using member = round_marks::member;
  const step_times steps[] = {
    times_since(round_marks::time{0}, marks, [](const member& m) { return m.contributions.last; }),
    times_since(contributed, marks, [](const member& m) { return m.results.last; }),
    times_since(held, marks, [](const member& m) { return m.confirmed; }),
  };
  for (std::size_t i = 0; i < marks.members.size(); ++i) {
    member_wait wait{marks.members[i].peer, 0, 0, marks.members[i].weight};
    for (const auto& step : steps) {
      auto others = median_of_others(step, i);
      wait.others += others;
      wait.seconds += std::max(0.0, step[i].value_or(0) - others);
    }
    out.push_back(wait);
  }
  return out;
}

round_report report_of_one(const round_plan& plan, double weight,
                           std::shared_ptr<const float_vector> values) {
  round_report report{.outcome = round_outcome::complete, .round = plan.id, .epoch = plan.epoch};
  report.contributors = report.participants = {plan.members.front().peer.id};
  report.group_size = 1;
  report.weight_sum = weight;
  report.values = std::move(values);
  return report;
}

round_report report_of_two(const round_report& first, round_report second) {
  second.group_size = first.group_size;
  second.allreduce_seconds += first.allreduce_seconds;
  if (first.outcome == round_outcome::shrunk && second.outcome == round_outcome::complete) {
    second.outcome = first.outcome;
    second.why = first.why;
  }
  if (first.weight_sum <= 0)
    second.weight_sum = 0;
  return second;
}

} // namespace waggle
