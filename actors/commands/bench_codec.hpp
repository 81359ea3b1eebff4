#pragma once

#include <nlohmann/json_fwd.hpp>

#include "actors/commands/bench.hpp"
#include "runtime/core/bytes.hpp"

namespace waggle {

/// The measurement of spec averaging.md §9.8.
struct codec_bench_config {
  std::size_t elements = 10'000'000;
  std::uint64_t seed = 7348;
  std::size_t part_bytes = 512_KiB; // encoded
  int iterations = 30;
};

/// Every codec there and back over N(0, 1) values, on one thread: a list with an object for each
/// (codec, bytes, ratio, mean_square_error, largest_error, encode_mb_per_s, decode_mb_per_s, the
/// fields of summary_of for there and back together, and the configuration). Throughput counts
/// megabytes (10⁶) of float32, whatever the codec makes of them.
nlohmann::ordered_json measure_codecs(const codec_bench_config& config);

/// `waggle bench codec`.
bench_entry codec_benchmark();

} // namespace waggle
