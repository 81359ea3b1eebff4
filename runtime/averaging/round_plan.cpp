#include "runtime/averaging/round_plan.hpp"

#include <algorithm>
#include <set>

#include "runtime/codec/exact_number.hpp"

namespace waggle {

status validate_plan(const round_plan& plan) {
  auto broken = [](std::string why) {
    return failure{ec::protocol_violation, "plan: " + std::move(why)};
  };
  auto members = plan.members.size();
  if (plan.id.is_zero())
    return broken("no round id");
  if (members == 0 || members > round_members_max)
    return broken(std::to_string(members) + " members");
  if (plan.shares.size() != members)
    return broken("as many shares as members are needed");
  if (plan.elements == 0 || plan.elements > plan_elements_max)
    return broken(std::to_string(plan.elements) + " elements");
  std::uint64_t covered = 0;
  for (const auto& run : plan.codecs) {
    if (!is_known(run.codec))
      return broken("unknown codec");
    if (run.elements == 0 || run.elements > plan.elements - covered)
      return broken("the codecs do not fit the vector");
    if (result_of(run.codec) != codec_result::aggregate
        && (run.elements > whole_run_max || run.elements % exact_values != 0))
      return broken("the numbers do not fit in a part");
    covered += run.elements;
  }
  if (covered != plan.elements || plan.codecs.size() > codec_runs_max)
    return broken("the codecs do not cover the vector");
  if (to_string(plan.reduce_by.how) == "unknown")
    return broken("unknown aggregator");
  if (!(plan.reduce_by.check_share >= 0 && plan.reduce_by.check_share <= 1))
    return broken("the share of checked parts");
  if (plan.gathered.size() != members)
    return broken("as many gathered texts as members are needed");
  if (plan.part_elements == 0 || plan.part_elements > part_elements_max)
    return broken(std::to_string(plan.part_elements) + " elements a part");
  if (plan.min_contributors == 0 || plan.min_contributors > round_members_max)
    return broken("min_contributors");
  std::set<peer_id> seen;
  std::uint64_t sum = 0;
  std::uint64_t parts = 0;
  bool reducer = false;
  for (std::size_t i = 0; i < members; ++i) {
    const auto& member = plan.members[i];
    if (!seen.insert(member.peer.id).second)
      return broken("a member twice");
    if (plan.shares[i] > plan.elements - sum)
      return broken("shares exceed the vector");
    if (member.mode == member_mode::client && plan.shares[i] != 0)
      return broken("a client cannot reduce");
    reducer = reducer || member.mode != member_mode::client;
    sum += plan.shares[i];
    parts += (plan.shares[i] + plan.part_elements - 1) / plan.part_elements;
    if (plan.gathered[i].size() > gather_bytes_max)
      return broken("a gathered text is too long");
  }
  if (sum != plan.elements)
    return broken("shares do not cover the vector");
  if (!reducer || plan.members.front().mode == member_mode::client)
    return broken("a client cannot lead");
  parts += plan.codecs.size(); // each border cuts at most one part in two
  bool pledged = has_pledges(plan);
  if (parts > (pledged ? checked_parts_max : parts_max))
    return broken(std::to_string(parts) + " parts" + (pledged ? ", whose sums are checked" : ""));
  return done{};
}

std::string_view why_unchecked(const round_plan& plan) {
  // A liar says that it holds what it sent.
  if (plan.members.size() <= 2)
    return "two, and a digest proves nothing in a pair";
  if (plan.one_host)
    return "processes of one user on one host, which can read each other's keys, or peers of a run "
           "with --trust-members true";
  return {};
}

bool has_pledges(const round_plan& plan) {
  return is_checked(plan)
         && (plan.reduce_by.check_share > 0
             || std::ranges::any_of(plan.codecs, [](const codec_run& run) {
                  return sends_contributions_back(run.codec);
                }));
}

std::size_t position_of(const peer_id& peer, const round_plan& plan) {
  auto found = std::find_if(plan.members.begin(), plan.members.end(),
                            [&](const round_member& m) { return m.peer.id == peer; });
  return static_cast<std::size_t>(found - plan.members.begin());
}

} // namespace waggle
