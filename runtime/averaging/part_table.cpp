#include "runtime/averaging/part_table.hpp"

#include <algorithm>
#include <optional>

#include "runtime/core/check.hpp"

namespace waggle {

part_table::part_table(const round_plan& plan) {
  std::uint64_t offset = 0;
  std::uint64_t end = 0; // of the member's share
  auto run = plan.codecs.begin();
  std::uint64_t run_end = run->elements;
  for (std::size_t member = 0; member < plan.members.size(); ++member) {
    end += plan.shares[member];
    while (offset < end) {
      if (offset == run_end)
        run_end += (++run)->elements;
      auto whole = result_of(run->codec) != codec_result::aggregate;
      auto count = whole
                     ? run_end - offset
                     : std::min<std::uint64_t>(plan.part_elements, std::min(end, run_end) - offset);
      parts_.push_back({offset, static_cast<std::uint32_t>(count),
                        static_cast<std::uint32_t>(member), run->codec});
      offset += count;
    }
    if (plan.members[member].mode != member_mode::client)
      reducers_.insert(member);
  }
}

bool part_table::can_reduce(const round_view& view) const {
  return !(reducers_ & view.participant_set()).empty();
}

std::size_t part_table::owner(std::size_t index, const round_view& view) const {
  auto default_owner = parts_[index].default_owner;
  if (view.participant_set().contains(default_owner))
    return default_owner;
  WAGGLE_CHECK(can_reduce(view), "no reducer among the participants");
  // Choose among all reducers, lost ones included, so that another loss moves no part except the
  // lost member's own.
  auto others = reducers_;
  others.erase(default_owner);
  auto turn = index % others.size();
  std::optional<std::size_t> before;
  std::optional<std::size_t> from;
  others.for_each([&](std::size_t member) {
    auto& found = turn == 0 ? from : before;
    turn -= turn > 0 ? 1 : 0;
    if (!found && view.participant_set().contains(member))
      found = member;
  });
  return from ? *from : *before;
}

round_view first_view(const round_plan& plan) {
  member_set contributors;
  for (std::size_t member = 0; member < plan.members.size(); ++member)
    if (plan.members[member].mode != member_mode::auxiliary)
      contributors.insert(member);
  return {0, contributors.bits(), member_set::first(plan.members.size()).bits(), false};
}

} // namespace waggle
