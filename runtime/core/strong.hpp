#pragma once

#include <compare>
#include <cstddef>
#include <functional>
#include <string>

namespace waggle {

/// A value of type `Rep` that only mixes with values of the same `Tag`.
/// Conversions are explicit both ways, comparisons are those of `Rep`.
template <class Tag, class Rep>
class strong {
public:
  using rep = Rep;

  constexpr strong() = default;
  constexpr explicit strong(Rep value) : value_(value) {}

  [[nodiscard]] constexpr Rep value() const { return value_; }
  constexpr explicit operator Rep() const { return value_; }

  [[nodiscard]] constexpr strong next() const { return strong{static_cast<Rep>(value_ + 1)}; }

  friend constexpr auto operator<=>(const strong&, const strong&) = default;

private:
  Rep value_{};
};

template <class Tag, class Rep>
std::string to_string(const strong<Tag, Rep>& x) {
  return std::to_string(x.value());
}

} // namespace waggle

template <class Tag, class Rep>
struct std::hash<waggle::strong<Tag, Rep>> {
  std::size_t operator()(const waggle::strong<Tag, Rep>& x) const noexcept {
    return std::hash<Rep>{}(x.value());
  }
};
