#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace waggle {

/// The load of a bucket, as one peer observed it while it searched for a group there.
struct bucket_load {
  static constexpr std::size_t bits_max = 20;
  static constexpr std::size_t peers_max = 1'000'000;

  std::size_t bits = 0;  // of the bucket's key
  std::size_t peers = 1; // that searched there at the same time, including itself

  /// Two numbers, as stored in the DHT.
  [[nodiscard]] std::string text() const;
  /// Parses exactly what `text` writes, within the limits; otherwise nothing.
  static std::optional<bucket_load> parse(std::string_view text);

  friend bool operator==(const bucket_load&, const bucket_load&) = default;
};

/// The number of bits that the keys of all buckets should have (elastic bit length): a bucket is
/// split when more than twice `target` peers search in it, and two are merged when half of `target`
/// or fewer do, or too few for a group. It starts from the median length, so that peers with the
/// same loads choose the same length, regardless of their own. Only medians are used: a few peers
/// that see little, or report false values, change nothing.
///
/// @param loads of other peers and of this one, the last of each. Without any, returns nothing.
/// @param target the size of a full group, at least 2.
/// @param minimum the size of the smallest group that averages, at most `target`.
std::optional<std::size_t> elastic_length(const std::vector<bucket_load>& loads, std::size_t target,
                                          std::size_t minimum);

} // namespace waggle
