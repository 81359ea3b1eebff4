#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "runtime/codec/instructions.hpp"
#include "runtime/core/result.hpp"

namespace waggle {

/// How a part is encoded on the wire. The values are sent to peers: append only. Formulas and
/// layouts are in the headers of the codec families.
enum class codec_id : std::uint8_t {
  none = 0,           // float32, little-endian
  float16 = 1,        // IEEE half, nearest even; finite values clamped to ±65504 (half.hpp)
  bfloat16 = 2,       // the upper half of a float32, nearest even; finite values stay finite
  scaled_float16 = 3, // halves of (x − mean)/deviation of the part (scaled_half.cpp)
  uniform8 = 4,       // 256 equal cells over ±3 deviations, their means as codebook (table8.cpp)
  quantile8 = 5,      // 256 equally likely cells, their means as codebook (table8.cpp)
  blockwise8 = 6,     // nearest of 256 fixed fractions of a block's largest (blockwise8.hpp)
  median64 = 7,       // numbers of three float32 each, whose median counts (exact_number.hpp)
  largest64 = 8,      // the same, of which the largest counts
  e3m0 = 9,           // a sign and a power of two below a block's largest (e3m0.hpp)
  sparse2 = 10,       // the largest 64 of 4096 values, in two bits each (sparse2.hpp)
  mean64 = 11,                // the same, of which the weighted mean counts
};

/// What a reducer makes of the contributions to a part.
enum class codec_result : std::uint8_t {
  aggregate, // that of the round, as a mean
  median,    // of the numbers, weighted; of two in the middle the lower
  largest,   // of the numbers
  mean,      // of the numbers, weighted; with a robust aggregator their median
};

/// What a reducer sends to the members for a part that it has summed.
enum class result_form : std::uint8_t {
  encoded_sum,   // the aggregate, encoded as the contributions are
  contributions, // these as they came, in the order of their members: each member sums them itself
};

/// One codec: everything that the rest of the program knows about it. Only `size`
/// is called for empty parts.
struct codec_row {
  codec_id id;
  std::string_view name;
  std::string_view note; // for the help of --codec, in parentheses after the name
  double bits_per_value; // without the fixed cost of a part
  std::size_t (*size)(std::size_t n);
  /// Writes size(n) bytes.
  void (*encode)(instructions path, const float* values, std::size_t n, std::byte* bytes);
  /// Whether an encoder writes such a header or codebook: ec::malformed if not. Null: there is
  /// none. The bytes come from a peer; there are size(n) of them.
  status (*check)(const std::byte* bytes, std::size_t n);
  /// Decodes the values [begin, begin + count) of the part. REQUIRES: `check` succeeded.
  void (*read)(instructions path, const std::byte* bytes, std::size_t n, std::size_t begin,
               std::size_t count, float* values);
  codec_result result = codec_result::aggregate;
  result_form sent_back = result_form::encoded_sum;
  /// Of a codec that carries few values: those of one chunk of sparse_chunk values, with their
  /// ascending places within it. Returns how many; the others are 0. Writes at most sparse_chunk of
  /// each. Null: it carries all. REQUIRES: `check` succeeded.
  std::size_t (*kept)(const std::byte* bytes, std::size_t n, std::size_t chunk,
                      std::uint16_t* places, float* values) = nullptr;
};

constexpr std::size_t sparse_chunk = 4096;

/// Each is defined in the file of its family.
namespace codecs {
extern const codec_row none;
extern const codec_row float16;
extern const codec_row bfloat16;
extern const codec_row scaled_float16;
extern const codec_row uniform8;
extern const codec_row quantile8;
extern const codec_row blockwise8;
extern const codec_row median64;
extern const codec_row largest64;
extern const codec_row e3m0;
extern const codec_row sparse2;
extern const codec_row mean64;
} // namespace codecs

/// All codecs, in the order of their numbers.
inline constexpr std::array codec_table{
  &codecs::none,      &codecs::float16,   &codecs::bfloat16,   &codecs::scaled_float16,
  &codecs::uniform8,  &codecs::quantile8, &codecs::blockwise8, &codecs::median64,
  &codecs::largest64, &codecs::e3m0,      &codecs::sparse2,    &codecs::mean64,
};
/// Those that an option may name: of the others, the vector's tensors say where they are.
inline constexpr std::array offered_codec_table{
  &codecs::none,           &codecs::float16,  &codecs::bfloat16,
  &codecs::scaled_float16, &codecs::uniform8, &codecs::quantile8,
  &codecs::blockwise8,     &codecs::e3m0,     &codecs::sparse2,
};

} // namespace waggle
