#pragma once

#include <nlohmann/json_fwd.hpp>

#include "runtime/cli/bench.hpp"
#include "runtime/core/bytes.hpp"

namespace waggle {

/// What measure_codecs measures.
struct codec_bench_config {
  std::size_t elements = 10'000'000;
  std::uint64_t seed = 7348;
  std::size_t part_bytes = 512_KiB; // encoded
  int iterations = 30;
};

/// Encodes and decodes N(0, 1) values with every codec, on one thread. Returns a list with one
/// object per codec: codec, bytes, ratio, mean_square_error, largest_error, encode_mb_per_s,
/// decode_mb_per_s, the fields of summary_of for encoding plus decoding, and the configuration.
/// Throughput is in megabytes (10⁶ bytes) of float32, independent of the encoded size.
nlohmann::ordered_json measure_codecs(const codec_bench_config& config);

/// `waggle bench codec`.
bench_entry codec_benchmark();

} // namespace waggle
