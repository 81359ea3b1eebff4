#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <vector>

#include "runtime/averaging/by_view.hpp"
#include "runtime/averaging/part_table.hpp"
#include "runtime/core/ids.hpp"

namespace waggle {

/// Larger lists of digests are not sent: several parts share one digest then.
constexpr std::size_t result_groups_max = 4096;

/// Cuts the parts of a round into the groups for which digests are compared: as small as
/// result_groups_max permits, each with parts of one default owner. A pure function of the plan.
class part_groups {
public:
  explicit part_groups(const part_table& parts);

  [[nodiscard]] std::size_t size() const { return groups_.size(); }
  [[nodiscard]] std::size_t group_of(std::uint32_t part) const { return group_of_[part]; }
  [[nodiscard]] const std::vector<std::uint32_t>& operator[](std::size_t group) const {
    return groups_[group];
  }
  /// The member that reduces all parts of the group in `view`; nothing if several do.
  [[nodiscard]] std::optional<std::size_t> reducer(std::size_t group, const part_table& parts,
                                                   const round_view& view) const;

private:
  std::vector<std::vector<std::uint32_t>> groups_;
  std::vector<std::size_t> group_of_; // by part
};

/// The values of part `index` of a result, as the members apply them.
using part_values = std::function<std::span<const float>(std::uint32_t index)>;

struct result_terms {
  round_id round;
  std::uint64_t contributors = 0;
  double weight_sum = 0;
};

/// SHA-256 of the weight and the values of one group.
digest group_digest(const result_terms& of, const std::vector<std::uint32_t>& group,
                    const part_values& values);

/// The digest of a whole result, made of the digests of all groups.
digest result_digest(const result_terms& of, std::span<const digest> groups);

/// The same with a key, eight times as fast: a Poly1305 tag of each group takes the place of its
/// SHA-256. Two results that were fixed before the key was known have different digests but with a
/// probability below 2^-80 (Poly1305 is a 2^-106·⌈bytes/16⌉-almost universal hash). Whoever knows
/// the key can make such results, so it must not be used to check bytes that arrive later.
digest keyed_result_digest(const result_terms& of, const digest& key, const part_groups& groups,
                           const part_values& values);

/// The key of a view: a hash over one share of each participant, which it reveals when it holds the
/// whole result. No member can know it before the last honest one does so.
/// REQUIRES: shares.missing(view).empty().
digest result_key(const by_view<digest>& shares, const round_view& view);

} // namespace waggle
