#include "runtime/matchmaking/group_key.hpp"

#include <algorithm>
#include <bit>
#include <numeric>
#include <utility>

#include "runtime/core/byte_io.hpp"
#include "runtime/core/check.hpp"
#include "runtime/crypto/digest.hpp"

namespace waggle {

namespace {

failure bad(std::string why) {
  return {ec::bad_config, std::move(why)};
}

/// Uniform 64-bit words: the first eight bytes, little-endian, of SHA-256(seed ‖ counter), for the
/// counters 0, 1, 2, … as eight bytes, little-endian.
class hash_words {
public:
  explicit hash_words(const round_id& seed) : seed_(seed) {}

  std::uint64_t next() {
    auto hash = sha256_stream{}.add(seed_.view()).add(little_endian(counter_++)).finish();
    return byte_reader{hash.view()}.get<std::uint64_t>();
  }

  /// Rejects words of the last, incomplete run of `bound` numbers: with them, small results would
  /// be more likely than large ones.
  std::uint64_t below(std::uint64_t bound) {
    auto rest = (UINT64_MAX % bound + 1) % bound; // 2^64 mod bound
    for (;;) {
      auto word = next();
      if (word <= UINT64_MAX - rest)
        return word % bound;
    }
  }

private:
  const round_id& seed_;
  std::uint64_t counter_ = 0;
};

} // namespace

std::vector<std::uint32_t> distinct_indices(const round_id& seed, std::size_t draws,
                                            std::size_t bound) {
  WAGGLE_CHECK(draws <= bound, "more distinct numbers asked for than there are");
  std::vector<std::uint32_t> numbers(bound);
  std::iota(numbers.begin(), numbers.end(), 0U);
  hash_words words{seed};
  for (std::size_t i = 0; i < draws; ++i)
    std::swap(numbers[i], numbers[i + words.below(bound - i)]);
  numbers.resize(draws);
  return numbers;
}

std::string bucket_digits(std::uint32_t index, std::size_t buckets) {
  auto count = std::max<std::size_t>(std::bit_width(buckets - 1), 1);
  std::string digits(count, '0');
  for (std::size_t i = 0; i < count; ++i)
    if ((index >> (count - 1 - i) & 1U) != 0)
      digits[i] = '1';
  return digits;
}

result<group_key> group_key::make(std::string prefix, std::string bits) {
  if (prefix.empty())
    return bad("the prefix of a group key must not be empty");
  if (prefix.size() > prefix_bytes_max)
    return bad("the prefix of a group key has at most " + std::to_string(prefix_bytes_max)
               + " bytes, not " + std::to_string(prefix.size()));
  if (prefix.find('.') != std::string::npos)
    return bad("the prefix of a group key must not contain \".\": " + prefix);
  if (bits.find_first_not_of("01") != std::string::npos)
    return bad("group bits consist of 0 and 1, not \"" + bits.substr(0, bits_max) + "\"");
  if (bits.size() > bits_max)
    return bad("at most " + std::to_string(bits_max) + " group bits, not "
               + std::to_string(bits.size()));
  return group_key{std::move(prefix), std::move(bits)};
}

void group_key::resize(std::size_t length, const std::function<unsigned()>& further) {
  WAGGLE_CHECK(length <= bits_max, std::to_string(length));
  if (bits_.size() > length)
    bits_.erase(0, bits_.size() - length);
  while (bits_.size() < length)
    bits_.insert(bits_.begin(), further() == 0 ? '0' : '1');
}

void group_key::move_on(const round_id& group, std::size_t position, std::size_t members,
                        std::size_t buckets) {
  WAGGLE_CHECK(position < members && members <= buckets, "no bucket for this member");
  if (bits_.empty())
    return;
  auto index = distinct_indices(group, members, buckets)[position];
  auto shifted = bits_ + bucket_digits(index, buckets);
  bits_ = shifted.substr(shifted.size() - bits_.size());
}

} // namespace waggle
