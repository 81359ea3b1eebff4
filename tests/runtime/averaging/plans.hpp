#pragma once

#include <numeric>

#include "runtime/averaging/part_reducer.hpp"
#include "runtime/averaging/part_table.hpp"
#include "runtime/averaging/round_plan.hpp"
#include "runtime/crypto/identity.hpp"

namespace waggle {

/// A valid plan for `members` nodes that reduce `share` elements each.
inline round_plan plan_for(std::size_t members, std::uint64_t share = 10,
                           std::uint32_t part_elements = 4) {
  round_plan plan;
  plan.id.bytes.fill(std::byte{7});
  plan.prefix = "demo_grad";
  plan.part_elements = part_elements;
  for (std::size_t i = 0; i < members; ++i) {
    round_member member;
    member.peer.key.bytes[0] = static_cast<std::byte>(i + 1);
    member.peer.id = peer_id_of(member.peer.key);
    member.peer.addresses = {{"10.0.0." + std::to_string(i + 1), 7700}};
    plan.members.push_back(member);
    plan.shares.push_back(share);
  }
  plan.elements = std::accumulate(plan.shares.begin(), plan.shares.end(), std::uint64_t{0});
  plan.codecs = {{plan.elements, codec_id::none}};
  plan.gathered.resize(members);
  return plan;
}

inline member_set members_of(std::initializer_list<std::size_t> indices) {
  member_set out;
  for (auto i : indices)
    out.insert(i);
  return out;
}

/// The members that sent NaN or infinite values.
inline member_set poisoned(const part_reducer::reduction& outcome) {
  member_set out;
  for (const auto& found : outcome.excluded)
    if (found.reason == ec::non_finite)
      out.insert(found.member);
  return out;
}

} // namespace waggle
