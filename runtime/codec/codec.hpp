#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

#include "runtime/codec/instructions.hpp"
#include "runtime/core/bytes.hpp"
#include "runtime/core/result.hpp"

namespace waggle {

/// How a part is written on the wire. Values travel: append only.
enum class codec_id : std::uint8_t {
  none = 0,    // float32, little-endian
  float16 = 1, // IEEE half, nearest even; finite values clamped to ±65504, Inf and NaN stay
};

std::string_view to_string(codec_id codec);
result<codec_id> parse_codec(std::string_view name);
bool is_known(codec_id codec);

/// Bytes of `elements` values under `codec`, exactly.
std::size_t encoded_size(codec_id codec, std::size_t elements);

/// Writes `values` to `out`, whose size is `encoded_size`. The bytes are a function of the values
/// alone, on every machine: a part that another member reduces again gets the same ones. What is
/// NaN or infinite is not finite after decoding either, and finite values stay finite. `path` is
/// there for tests.
void encode(codec_id codec, std::span<const float> values, std::span<std::byte> out,
            instructions path = best_instructions());

/// The inverse; fails with ec::wrong_shape if `bytes` is not `encoded_size(codec, out.size())`
/// long. See part_reader for parts of a part.
status decode(codec_id codec, byte_span bytes, std::span<float> out,
              instructions path = best_instructions());

} // namespace waggle
