#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "runtime/averaging/result_digest.hpp"
#include "runtime/averaging/round_view.hpp"
#include "runtime/core/float_vector.hpp"
#include "runtime/core/ids.hpp"

namespace waggle {

/// Completes a result whose digest is known from members that report that they hold it, any of
/// which may lie. They send the list of the digests of its groups, and the parts of those that
/// differ from ours, which may overtake the list. Nothing is used before it was checked. Bounded:
/// of each member asked, each part is kept once.
///
/// Not thread-safe.
class result_repair {
public:
  /// @param groups must outlive this.
  /// @param wanted the digest without a key of the result; `of` names it, besides the weight.
  /// @param asked the members that are sent `ours`.
  /// @param ours the digests of our groups; zero for those that are not complete.
  result_repair(const part_groups& groups, const result_terms& of, const digest& wanted,
                member_set asked, std::vector<digest> ours);

  /// The members asked, without those that lied.
  [[nodiscard]] member_set asked() const { return asked_; }
  /// False: these are not the digests of the result that we want.
  [[nodiscard]] bool add_list(std::size_t from, const std::vector<digest>& groups);
  /// Whether a part that we may lack is expected from this member. REQUIRES: `part` exists.
  [[nodiscard]] bool wants(std::size_t from, std::uint32_t part) const;
  /// A part with as many values as it has. False: it does not belong to the result that we want.
  /// REQUIRES: wants(from, part).
  [[nodiscard]] bool add_part(std::size_t from, std::uint32_t part, double weight_sum,
                              std::shared_ptr<float_vector> values);
  /// The parts of the groups that are checked; each is returned once.
  [[nodiscard]] std::vector<std::pair<std::uint32_t, std::shared_ptr<float_vector>>> take_checked();

  [[nodiscard]] bool done() const { return missing_.empty(); }
  /// The digests of the result's groups. Empty: not known yet.
  [[nodiscard]] const std::vector<digest>& groups() const { return groups_; }
  /// Of the contributors, as the parts say. Nothing: no part has been checked.
  [[nodiscard]] std::optional<double> weight_sum() const { return weight_sum_; }

private:
  struct sent_group {
    double weight_sum = 0;
    std::map<std::uint32_t, std::shared_ptr<float_vector>> parts;
  };

  /// Checks what `from` has sent of a group, if that is all of it. False: it lied.
  bool check(std::size_t group, std::size_t from);

  const part_groups& all_;
  const result_terms of_;
  const digest wanted_;
  member_set asked_;
  const std::vector<digest> ours_;
  std::vector<digest> groups_;
  /// By group, then by sender. Before the list is here, all groups.
  std::map<std::size_t, std::map<std::size_t, sent_group>> missing_;
  std::vector<std::pair<std::uint32_t, std::shared_ptr<float_vector>>> checked_;
  std::optional<double> weight_sum_;
};

} // namespace waggle
