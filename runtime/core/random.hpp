#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace waggle {

/// The interface for all randomness of a peer (xoshiro256**, seeded). The same seed gives the same
/// sequence on every machine, which std::uniform_*_distribution does not guarantee. Not for keys:
/// those come from the operating system. Not thread-safe: each owner has its own, see `fork`.
class random_source {
public:
  explicit random_source(std::uint64_t seed);

  std::uint64_t next();
  /// Uniform in [0, bound). REQUIRES: bound > 0.
  std::uint64_t below(std::uint64_t bound);
  /// Uniform in [0, 1).
  double unit();
  void fill(std::span<std::byte> out);

  /// An independent source for the component with this `name`.
  [[nodiscard]] random_source fork(std::string_view name) const;

  template <class Range>
  void shuffle(Range& range) {
    for (std::size_t i = range.size(); i > 1; --i)
      std::swap(range[i - 1], range[below(i)]);
  }

private:
  std::uint64_t seed_;
  std::array<std::uint64_t, 4> state_{};
};

/// A seed from the operating system.
std::uint64_t entropy_seed();

} // namespace waggle
