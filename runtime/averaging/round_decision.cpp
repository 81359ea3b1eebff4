#include "runtime/averaging/round_decision.hpp"

#include <utility>
#include <vector>

namespace waggle {

bool is_quorum(member_set participants, std::size_t members) {
  auto twice = 2 * participants.size();
  return twice > members || (twice == members && participants.contains(0));
}

round_rules::round_rules(const round_plan& plan)
  : members(plan.members.size()), min_contributors(plan.min_contributors) {
  std::size_t liars = is_checked(plan) ? plan.reduce_by.faulty_max : 0;
  faulty = liars < members && 3 * liars < members ? liars : 0;
  for (std::size_t i = 0; i < members; ++i)
    if (plan.members[i].mode != member_mode::auxiliary)
      senders.insert(i);
}

bool round_rules::is_quorum(member_set participants) const {
  if (faulty == 0)
    return waggle::is_quorum(participants, members);
  return 2 * participants.size() > members + faulty;
}

std::string promise_statement(const round_id& round, const takeover_promise& promise) {
  const auto& view = promise.view;
  return "waggle promise " + to_hex(round.view()) + " " + std::to_string(promise.promised) + " "
         + std::to_string(view.number) + " " + std::to_string(view.contributors) + " "
         + std::to_string(view.participants) + (view.adopted ? " adopted" : "")
         + (promise.prepared ? " prepared " : " ") + to_hex(promise.value.view());
}

namespace {

using reported_result = std::pair<std::uint64_t, digest>;

struct reporters {
  member_set all;
  bool above_first_view = false; // one of them is in a view above 0
};

std::map<reported_result, reporters> reports_in(const takeover_promises& promises,
                                                const round_rules& rules) {
  std::map<reported_result, reporters> out;
  for (const auto& [member, said] : promises) {
    auto contributors = said.view.contributor_set();
    bool reports = (said.prepared || said.view.adopted) && !said.value.is_zero()
                   && !contributors.empty() && rules.senders.contains(contributors);
    if (!reports)
      continue;
    auto& by = out[{said.view.contributors, said.value}];
    by.all.insert(member);
    by.above_first_view = by.above_first_view || said.view.number > 0;
  }
  return out;
}

/// The number of members in the smallest quorum. REQUIRES: rules.faulty > 0.
std::size_t smallest_quorum(const round_rules& rules) {
  return (rules.members + rules.faulty) / 2 + 1;
}

} // namespace

result<round_view> next_view(std::uint32_t number, const takeover_promises& promises,
                             member_set participants, const round_rules& rules) {
  member_set answered;
  for (const auto& [member, said] : promises) {
    if (member >= rules.members || said.promised != number || !said.knows_view
        || said.view.number >= number)
      return failure{ec::protocol_violation, "a promise that is not about this view"};
    answered.insert(member);
  }
  if (!answered.contains(participants))
    return failure{ec::protocol_violation, "a participant that did not promise"};
  if (!rules.is_quorum(participants))
    return failure{ec::lost_quorum, "too few members answered"};

  auto adopt = [&](const reported_result& what) {
    return round_view{number, what.first, participants.bits(), true, what.second};
  };
  auto reports = reports_in(promises, rules);
  std::vector<reported_result> perhaps_committed;
  for (const auto& [what, by] : reports) {
    auto against = answered.size() - by.all.size();
    auto outside = rules.members - smallest_quorum(rules);
    bool in_first_view = what.first == rules.senders.bits() && against <= rules.faulty;
    if (in_first_view || (by.above_first_view && against <= rules.faulty + outside))
      perhaps_committed.push_back(what);
  }
  if (perhaps_committed.size() > 1)
    return failure{ec::lost_quorum, "one of several results may have been committed"};
  if (perhaps_committed.size() == 1) {
    const auto& what = perhaps_committed.front();
    if (reports.at(what).all.size() <= rules.faulty)
      return failure{ec::lost_quorum, "too few members report what may have been committed"};
    return adopt(what);
  }

  // All hold a result, but not the same, because a reducer lied: what most hold is right, or as
  // good as what the liar would send next time.
  for (const auto& [what, by] : reports) {
    member_set over_the_same;
    for (const auto& [other, holders] : reports)
      if (other.first == what.first)
        over_the_same = over_the_same | holders.all;
    if (over_the_same == answered && rules.is_quorum(by.all))
      return adopt(what);
  }

  auto contributors = participants & rules.senders;
  if (contributors.empty() || contributors.size() < rules.min_contributors)
    return failure{ec::too_few_contributors, {}};
  return round_view{number, contributors.bits(), participants.bits(), false, {}};
}

} // namespace waggle
