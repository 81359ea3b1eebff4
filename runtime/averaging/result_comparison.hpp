#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <vector>

#include "runtime/averaging/round_view.hpp"
#include "runtime/core/ids.hpp"

namespace waggle {

/// What the members of a view report that they hold: for each group of parts its digest
/// (`group_digests`). Finds out why their results differ.
///
/// A reducer is at fault if it reports that it sent something else than most members hold, or if no
/// digest of one of its groups is held by more than half of them: while most members are honest,
/// it then sent different bytes to honest members. A member that differs from most others while the
/// reducer agrees with these is not blamed, and neither is the reducer: either may lie. That member
/// is sent the bytes that the others hold (repair), so neither can have the other left out.
///
/// Not thread-safe.
class result_comparison {
public:
  struct findings {
    member_set at_fault;
    bool we_hold_most = true; // what most members hold, in every group
  };

  /// What `member` holds in view `number`. Only its first list for the highest view counts.
  void add(std::size_t member, std::uint32_t number, std::vector<digest> groups);
  [[nodiscard]] bool has(std::size_t member, std::uint32_t number) const;
  /// REQUIRES: has(member, number).
  [[nodiscard]] const std::vector<digest>& of(std::size_t member, std::uint32_t number) const;

  /// Whether what `member` listed for view `number` is what at least `most` of `among` listed, in
  /// every group.
  [[nodiscard]] bool held_by(std::size_t most, member_set among, std::size_t member,
                             std::uint32_t number) const;

  /// @param among the members whose lists for view `number` are here; contains `self`. All lists
  ///   have as many groups.
  /// @param reducer the member that reduced a group in this view; nothing if several did.
  [[nodiscard]] findings
  judge(std::uint32_t number, member_set among, std::size_t self,
        const std::function<std::optional<std::size_t>(std::size_t group)>& reducer) const;

private:
  struct list {
    std::uint32_t view;
    std::vector<digest> groups;
  };
  std::map<std::size_t, list> lists_; // by member
};

} // namespace waggle
