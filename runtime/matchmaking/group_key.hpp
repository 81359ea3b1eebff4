#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/core/ids.hpp"
#include "runtime/core/result.hpp"

namespace waggle {

/// The bucket in which a peer searches for partners: `prefix + ".0b" + bits`, e.g.
/// "demo_grad.0b0110". Peers with the same prefix and equal bits share a bucket; without bits, all
/// peers of a prefix share one.
///
/// After each group the bits of its members change (`move_on`), so that members of one group do not
/// meet again before averages have mixed through the whole swarm: Moshpit SGD (arXiv:2103.03239).
///
/// Invariant: a key that exists is valid. Not thread-safe.
class group_key {
public:
  static constexpr std::size_t prefix_bytes_max = 128;
  static constexpr std::size_t bits_max = 64;

  /// Fails with ec::bad_config and a sentence: an empty or long prefix, one with ".", other bits
  /// than 0 and 1.
  static result<group_key> make(std::string prefix, std::string bits);

  [[nodiscard]] const std::string& prefix() const { return prefix_; }
  [[nodiscard]] const std::string& bits() const { return bits_; }
  [[nodiscard]] std::string text() const { return prefix_ + ".0b" + bits_; }

  /// Keeps the last `length` bits; if there are fewer, prepends bits from `further`. REQUIRES:
  /// length <= bits_max; further() returns 0 or 1.
  void resize(std::size_t length, const std::function<unsigned()>& further);

  /// Called by every member when `group` has formed: shifts the digits of the bucket of the member
  /// at `position` into the bits; their number stays the same. Without bits nothing changes.
  /// REQUIRES: position < members ≤ buckets.
  void move_on(const round_id& group, std::size_t position, std::size_t members,
               std::size_t buckets);

  friend bool operator==(const group_key&, const group_key&) = default;

private:
  group_key(std::string prefix, std::string bits)
    : prefix_(std::move(prefix)), bits_(std::move(bits)) {}

  std::string prefix_;
  std::string bits_;
};

/// `draws` distinct numbers below `bound`, uniform and determined by `seed` alone: a Fisher–Yates
/// shuffle driven by SHA-256(seed ‖ counter). The same on every machine. REQUIRES: draws ≤ bound.
std::vector<std::uint32_t> distinct_indices(const round_id& seed, std::size_t draws,
                                            std::size_t bound);

/// `index` in binary, with as many digits as the largest number below `buckets` needs, at least
/// one.
std::string bucket_digits(std::uint32_t index, std::size_t buckets);

} // namespace waggle
