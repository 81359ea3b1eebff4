#include "runtime/averaging/part_reducer.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>

#include "runtime/core/check.hpp"

namespace waggle {

namespace {

// Small enough that the sums and one decoded contribution stay in the first-level cache.
constexpr std::size_t block_elements = 1024;

// The loops are compiled twice; the arithmetic is the same multiply and add in both, so the bytes
// are, too. (AVX2 does not imply FMA, and contraction is switched off for the whole project.)
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__SANITIZE_ADDRESS__)                     \
  && !defined(__SANITIZE_THREAD__) && !defined(__clang__)
#define WAGGLE_VECTORIZED __attribute__((target_clones("avx2", "default"), optimize("O3")))
#else
#define WAGGLE_VECTORIZED
#endif

WAGGLE_VECTORIZED
void set_scaled(double* sums, const float* values, std::size_t n, double weight) {
  for (std::size_t i = 0; i < n; ++i)
    sums[i] = weight * static_cast<double>(values[i]);
}

WAGGLE_VECTORIZED
void add_scaled(double* sums, const float* values, std::size_t n, double weight) {
  for (std::size_t i = 0; i < n; ++i)
    sums[i] += weight * static_cast<double>(values[i]);
}

/// Writes sums·factor; the result is 0 if and only if everything written is finite.
WAGGLE_VECTORIZED
std::uint32_t finish(const double* sums, float* out, std::size_t n, double factor) {
  std::uint32_t bad = 0;
  for (std::size_t i = 0; i < n; ++i) {
    auto value = static_cast<float>(sums[i] * factor);
    out[i] = value;
    bad |= static_cast<std::uint32_t>((std::bit_cast<std::uint32_t>(value) & 0x7f800000U)
                                      == 0x7f800000U);
  }
  return bad;
}

WAGGLE_VECTORIZED
std::uint32_t count_non_finite(const float* values, std::size_t n) {
  std::uint32_t bad = 0;
  for (std::size_t i = 0; i < n; ++i)
    bad += static_cast<std::uint32_t>((std::bit_cast<std::uint32_t>(values[i]) & 0x7f800000U)
                                      == 0x7f800000U);
  return bad;
}

} // namespace

bool all_finite(std::span<const float> values) {
  // In pieces, so that a poisoned vector is recognized early and the counter cannot overflow.
  constexpr std::size_t piece = 1U << 16U;
  for (std::size_t i = 0; i < values.size(); i += piece)
    if (count_non_finite(values.data() + i, std::min(piece, values.size() - i)) != 0)
      return false;
  return true;
}

bool is_weight(double weight) {
  return weight == 0 || (weight >= weight_min && weight <= weight_max); // false for NaN
}

status part_reducer::add(std::size_t member, double weight, payload values) {
  if (present_.contains(member))
    return ec::duplicate_peer;
  if (!is_weight(weight))
    return ec::bad_weight;
  if (values.size != encoded_size(codec_, elements_))
    return ec::wrong_shape;
  auto at = std::find_if(contributions_.begin(), contributions_.end(),
                         [&](const contribution& c) { return c.member > member; });
  contributions_.insert(at, {member, weight, std::move(values)});
  present_.insert(member);
  return done{};
}

part_reducer::reduction part_reducer::reduce(member_set contributors, std::span<float> out) const {
  WAGGLE_CHECK(present_.contains(contributors) && out.size() == elements_,
               std::to_string(contributors.bits()) + " of " + std::to_string(present_.bits()));
  reduction outcome;
  std::vector<const contribution*> used;
  for (const auto& c : contributions_) {
    if (!contributors.contains(c.member) || c.weight == 0)
      continue;
    outcome.weight_sum += c.weight;
    used.push_back(&c);
  }
  if (used.empty()) {
    std::fill(out.begin(), out.end(), 0.0F);
    return outcome;
  }
  auto factor = 1.0 / outcome.weight_sum;
  std::array<double, block_elements> sums;
  std::array<float, block_elements> decoded;
  auto bytes_per_element = encoded_size(codec_, 1);
  std::uint32_t bad = 0;
  for (std::size_t begin = 0; begin < elements_; begin += block_elements) {
    auto n = std::min<std::size_t>(block_elements, elements_ - begin);
    bool first = true;
    for (const auto* c : used) {
      auto bytes = c->values.view().subspan(begin * bytes_per_element, n * bytes_per_element);
      const float* values = decoded.data();
      if (codec_ == codec_id::none
          && reinterpret_cast<std::uintptr_t>(bytes.data()) % alignof(float) == 0) {
        values = reinterpret_cast<const float*>(bytes.data());
      } else {
        auto decoded_ok = decode(codec_, bytes, std::span{decoded.data(), n});
        WAGGLE_CHECK(decoded_ok.ok(), "a block of a checked contribution does not decode");
      }
      if (first)
        set_scaled(sums.data(), values, n, c->weight);
      else
        add_scaled(sums.data(), values, n, c->weight);
      first = false;
    }
    bad |= finish(sums.data(), out.data() + begin, n, factor);
  }
  if (bad != 0) {
    // Somebody sent NaN or infinity: find out who. The mean of finite floats is always finite.
    std::vector<float> values(elements_);
    for (const auto* c : used) {
      auto decoded_ok = decode(codec_, c->values.view(), values);
      if (!decoded_ok.ok() || !all_finite(values))
        outcome.poisoned.insert(c->member);
    }
  }
  return outcome;
}

} // namespace waggle
