#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "runtime/codec/codec_table.hpp"
#include "runtime/core/bytes.hpp"
#include "runtime/core/result.hpp"

namespace waggle {

std::string_view to_string(codec_id codec);
/// One of offered_codec_table. Fails with ec::bad_config and a sentence that names those.
result<codec_id> parse_codec(std::string_view name);
/// "none, float16, …": for messages.
std::string codec_names();
bool is_known(codec_id codec);
/// REQUIRES: is_known.
codec_result result_of(codec_id codec);
/// Whether the members get the contributions to a part, instead of their sum. REQUIRES: is_known.
bool sends_contributions_back(codec_id codec);

/// Bits per value without the fixed cost of a part.
double bits_per_value(codec_id codec);

/// The codec with which `codec` writes a part of `elements` values: `none` if that is no longer. So
/// a part of a table codec with up to 341 values is exact and never larger than its floats.
codec_id written_as(codec_id codec, std::size_t elements);

/// The exact number of bytes of `elements` values under `codec`. At most 4·elements; 0 for an empty
/// part.
std::size_t encoded_size(codec_id codec, std::size_t elements);

/// Writes `values` to `out`, whose size is `encoded_size`. The bytes are a function of the values
/// alone, on every machine: a part that another member reduces again has the same bytes. NaN and
/// infinite values are not finite after decoding either, and finite values stay finite. `path` is
/// for tests.
void encode(codec_id codec, std::span<const float> values, std::span<std::byte> out,
            instructions path = best_instructions());

/// The inverse. Fails with ec::wrong_shape if `bytes` is not `encoded_size(codec, out.size())`
/// long, and with ec::malformed if its header or codebook is not valid. part_reader reads ranges of
/// a part.
status decode(codec_id codec, byte_span bytes, std::span<float> out,
              instructions path = best_instructions());

} // namespace waggle
