#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace waggle {

/// How full a bucket is, as one peer saw it while it looked for a group there.
struct bucket_load {
  static constexpr std::size_t bits_max = 20;
  static constexpr std::size_t peers_max = 1'000'000;

  std::size_t bits = 0;  // of the bucket's key
  std::size_t peers = 1; // that looked for a group there at the same time, itself included

  /// Two numbers, as they stand in the DHT.
  [[nodiscard]] std::string text() const;
  /// Nothing unless it is exactly what `text` writes, within the limits.
  static std::optional<bucket_load> parse(std::string_view text);

  friend bool operator==(const bucket_load&, const bucket_load&) = default;
};

/// How many bits the keys of all buckets are to have (spec/averaging.md §10, "elastic bit length"):
/// a bucket is split when more than twice `target` peers meet there, two are merged when half of it
/// or fewer do, or too few for a group. Begins at the length that most have, so that
/// whoever knows the same loads comes to the same length, whatever its own was. The medians are
/// what counts: a few peers that see little, or say what is not so, change nothing.
///
/// @param loads as known from others and ourselves, a peer's last word each. Nothing if there are
/// none.
/// @param target the size of a full group, at least 2.
/// @param minimum that of the smallest group that averages, at most `target`.
std::optional<std::size_t> elastic_length(const std::vector<bucket_load>& loads, std::size_t target,
                                          std::size_t minimum);

} // namespace waggle
