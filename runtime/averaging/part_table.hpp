#pragma once

#include <cstdint>
#include <vector>

#include "runtime/averaging/round_plan.hpp"
#include "runtime/averaging/round_view.hpp"

namespace waggle {

/// How the plan's vector is cut into parts, and which member reduces each. A pure function of the
/// plan, so that all members have the same table.
///
/// Invariant: parts are in ascending order, disjoint, never empty, and cover the vector. Each lies
/// within one member's share and one run of codecs; the last of either may be short. Only a run of
/// numbers (codec_result) is never cut: the member in whose share it begins reduces all of it.
/// Unit: elements, not bytes.
class part_table {
public:
  struct part {
    std::uint64_t offset = 0;
    std::uint32_t count = 0;
    std::uint32_t default_owner = 0; // the member that reduces it unless it is lost
    codec_id codec = codec_id::none;
  };

  /// REQUIRES: `validate_plan(plan)` succeeded.
  explicit part_table(const round_plan& plan);

  [[nodiscard]] std::size_t size() const { return parts_.size(); }
  [[nodiscard]] const part& operator[](std::size_t index) const { return parts_[index]; }

  /// The member that reduces part `index` in `view`: its default owner while that is a participant,
  /// else one of the other participants that may reduce. Those are taken in turn, so that a lost
  /// member's parts are spread; a part keeps its owner while that owner participates. REQUIRES:
  /// `can_reduce(view)`.
  [[nodiscard]] std::size_t owner(std::size_t index, const round_view& view) const;

  /// False if no participant of `view` may reduce (all are clients).
  [[nodiscard]] bool can_reduce(const round_view& view) const;

private:
  std::vector<part> parts_;
  member_set reducers_; // members that accept connections
};

round_view first_view(const round_plan& plan);

} // namespace waggle
