#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "runtime/codec/codec.hpp"
#include "runtime/core/random.hpp"

// Vectors of all kinds of values that gradients and parameters can have, and of worse ones.
// Computed with exact arithmetic (no logarithm), so that they are the same on every machine.
namespace waggle::codec_samples {

/// Nearly N(0, 1): twelve uniform values, less six.
inline float bell(random_source& random) {
  double sum = -6;
  for (int i = 0; i < 12; ++i)
    sum += random.unit();
  return static_cast<float>(sum);
}

inline std::vector<float> bells(std::uint64_t seed, std::size_t n, double mean = 0,
                                double deviation = 1) {
  random_source random{seed};
  std::vector<float> out(n);
  for (auto& x : out)
    x = static_cast<float>(mean + deviation * static_cast<double>(bell(random)));
  return out;
}

/// Finite values only.
inline const std::vector<std::string>& kinds() {
  static const std::vector<std::string> all{"bell",  "offset", "tails", "tiny",    "huge", "alike",
                                            "zeros", "sparse", "bits",  "largest", "steps"};
  return all;
}

inline std::vector<float> of_kind(const std::string& kind, std::uint64_t seed, std::size_t n) {
  random_source random{seed};
  constexpr auto most = std::numeric_limits<float>::max();
  std::vector<float> out(n);
  for (std::size_t i = 0; i < n; ++i) {
    auto& x = out[i];
    if (kind == "bell")
      x = bell(random);
    else if (kind == "offset")
      x = 1'000.0F + 0.01F * bell(random);
    else if (kind == "tails") {
      // A separate statement: compilers evaluate arguments in different orders.
      auto exponent = static_cast<int>(random.below(40)) - 20;
      x = std::ldexp(bell(random), exponent);
    } else if (kind == "tiny")
      x = std::bit_cast<float>(static_cast<std::uint32_t>(random.below(2'000)));
    else if (kind == "huge")
      x = 1e37F * bell(random);
    else if (kind == "alike")
      x = 0.1F;
    else if (kind == "zeros")
      x = random.below(2) == 0 ? 0.0F : -0.0F;
    else if (kind == "sparse")
      x = random.below(50) == 0 ? bell(random) : 0.0F;
    else if (kind == "largest")
      x = random.below(2) == 0 ? most : -most;
    else if (kind == "steps")
      x = static_cast<float>(i % 7);
    else // bits: any finite float
      do
        x = std::bit_cast<float>(static_cast<std::uint32_t>(random.next()));
      while (!std::isfinite(x));
  }
  return out;
}

inline std::vector<std::byte> encoded(codec_id codec, const std::vector<float>& values,
                                      instructions path = best_instructions()) {
  std::vector<std::byte> out(encoded_size(codec, values.size()));
  encode(codec, values, out, path);
  return out;
}

/// Encodes and decodes; empty if decoding fails.
inline std::vector<float> travelled(codec_id codec, const std::vector<float>& values) {
  std::vector<float> out(values.size());
  return decode(codec, encoded(codec, values), out).ok() ? out : std::vector<float>{};
}

inline double mean_square_error(const std::vector<float>& a, const std::vector<float>& b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    auto error = static_cast<double>(a[i]) - static_cast<double>(b[i]);
    sum += error * error;
  }
  return sum / static_cast<double>(a.size());
}

} // namespace waggle::codec_samples
