#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>

#include "runtime/core/ids.hpp"

namespace waggle {

/// A set of member indices (0 … 63) of one round.
class member_set {
public:
  constexpr member_set() = default;
  constexpr explicit member_set(std::uint64_t bits) : bits_(bits) {}

  /// {0, …, n-1}. REQUIRES: n ≤ 64.
  static constexpr member_set first(std::size_t n) {
    return member_set{n >= 64 ? ~std::uint64_t{0} : (std::uint64_t{1} << n) - 1};
  }

  static constexpr member_set only(std::size_t i) { return member_set{std::uint64_t{1} << i}; }

  [[nodiscard]] constexpr std::uint64_t bits() const { return bits_; }
  [[nodiscard]] constexpr bool contains(std::size_t i) const {
    return i < 64 && ((bits_ >> i) & 1U) != 0;
  }
  [[nodiscard]] constexpr bool contains(member_set other) const {
    return (other.bits_ & ~bits_) == 0;
  }
  [[nodiscard]] constexpr std::size_t size() const {
    return static_cast<std::size_t>(std::popcount(bits_));
  }
  [[nodiscard]] constexpr bool empty() const { return bits_ == 0; }
  /// REQUIRES: !empty().
  [[nodiscard]] constexpr std::size_t lowest() const {
    return static_cast<std::size_t>(std::countr_zero(bits_));
  }
  constexpr void insert(std::size_t i) { bits_ |= std::uint64_t{1} << i; }
  constexpr void erase(std::size_t i) { bits_ &= ~(std::uint64_t{1} << i); }

  friend constexpr member_set operator&(member_set a, member_set b) {
    return member_set{a.bits_ & b.bits_};
  }
  friend constexpr member_set operator|(member_set a, member_set b) {
    return member_set{a.bits_ | b.bits_};
  }
  friend constexpr member_set operator-(member_set a, member_set b) {
    return member_set{a.bits_ & ~b.bits_};
  }
  friend constexpr bool operator==(member_set, member_set) = default;

  template <class F>
  constexpr void for_each(F f) const {
    for (auto rest = bits_; rest != 0; rest &= rest - 1)
      f(static_cast<std::size_t>(std::countr_zero(rest)));
  }

private:
  std::uint64_t bits_ = 0;
};

/// View numbers are grouped into terms of this many: term t is numbers t·64 … t·64+63 and belongs
/// to member t % members. Within its term a leader may follow its own view with the next number. To
/// exceed another member's number it must begin a new term, and for that it must ask for promises.
constexpr std::uint32_t views_per_term = 64;

/// The leader of view `number` in a round of `members` members.
constexpr std::size_t leader_of(std::uint32_t number, std::size_t members) {
  return number / views_per_term % members;
}

/// One attempt at deciding a round. A higher number replaces a lower one. View 0 is implied by the
/// plan: all members contribute and participate.
struct round_view {
  std::uint32_t number = 0;
  std::uint64_t contributors = 0; // bitmap: members whose vectors are summed
  std::uint64_t participants = 0; // bitmap: members that must hold the result before the commit
  bool adopted = false;           // the value of an earlier view that may be committed
  /// The digest of the result (result_digest): of a view that is adopted, that was committed, or
  /// that the member which reports the view has prepared; otherwise zero.
  digest result{};

  [[nodiscard]] member_set contributor_set() const { return member_set{contributors}; }
  [[nodiscard]] member_set participant_set() const { return member_set{participants}; }

  /// True if this is the leader's next view after `before`. A leader's messages arrive in order: a
  /// member that enters this view has been in `before`. Otherwise members may arrive here through
  /// views that we skipped.
  [[nodiscard]] bool follows(const round_view& before) const {
    return number == before.number + 1 && number / views_per_term == before.number / views_per_term;
  }

  friend bool operator==(const round_view&, const round_view&) = default;
};

} // namespace waggle
