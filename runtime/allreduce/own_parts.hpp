#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <utility>

#include "runtime/averaging/aggregation.hpp"
#include "runtime/averaging/part_reducer.hpp"
#include "runtime/averaging/part_table.hpp"

namespace waggle {

/// The parts that this member reduces, or did in an earlier view: the contributions that arrived,
/// the contributors of each part's next sum, and which sum was sent to the others.
///
/// Contributions stay until the round ends; a part may be summed again over fewer members. Not
/// thread-safe.
class own_parts {
public:
  /// @param parts must outlive this.
  own_parts(const part_table& parts, aggregation reduce_by)
    : parts_(parts), reduce_by_(reduce_by) {}

  /// The part is ours in a view over `contributors`: it is due once all of them are here, unless
  /// that sum was sent to the others already.
  void want(std::uint32_t part, member_set contributors) {
    if (auto& own = at(part); own.sent_over != contributors.bits())
      own.wanted = contributors;
  }
  /// As part_reducer::add.
  status add(std::uint32_t part, std::size_t member, double weight, payload values) {
    return at(part).reducer.add(member, weight, std::move(values));
  }
  /// The contributors to sum the part over now. Returns a value once per call of `want`.
  std::optional<member_set> due(std::uint32_t part) {
    auto& own = at(part);
    if (own.wanted.empty() || !own.reducer.present().contains(own.wanted))
      return std::nullopt;
    return std::exchange(own.wanted, {});
  }
  [[nodiscard]] const part_reducer& reducer(std::uint32_t part) { return at(part).reducer; }

  /// The sum over `contributors` is going to be sent. False: it was sent already.
  bool mark_sent(std::uint32_t part, std::uint64_t contributors) {
    return std::exchange(at(part).sent_over, contributors) != contributors;
  }
  /// The others may have dropped the sums that they received.
  void forget_sent() {
    for (auto& [part, own] : known_)
      own.sent_over = 0;
  }
  void clear() { known_.clear(); }

private:
  struct own_part {
    part_reducer reducer;
    member_set wanted;           // empty: no sum is wanted
    std::uint64_t sent_over = 0; // 0: none was sent
  };

  own_part& at(std::uint32_t part) {
    auto found = known_.find(part);
    if (found == known_.end()) {
      const auto& cut = parts_[part];
      found =
        known_.emplace(part, own_part{part_reducer{cut.codec, cut.count, reduce_by_}, {}, 0}).first;
    }
    return found->second;
  }

  const part_table& parts_;
  const aggregation reduce_by_;
  std::map<std::uint32_t, own_part> known_;
};

} // namespace waggle
