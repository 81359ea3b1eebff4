#include "runtime/codec/codec.hpp"

#include <array>
#include <cstring>

#include "runtime/codec/blockwise8.hpp"
#include "runtime/codec/half.hpp"
#include "runtime/codec/part_reader.hpp"
#include "runtime/codec/scaled_half.hpp"
#include "runtime/codec/table8.hpp"
#include "runtime/core/check.hpp"

namespace waggle {

namespace {

constexpr std::array codecs_in_order{
  codec_id::none,     codec_id::float16,   codec_id::bfloat16,   codec_id::scaled_float16,
  codec_id::uniform8, codec_id::quantile8, codec_id::blockwise8,
};

/// Bytes in the codec's own layout.
std::size_t own_size(codec_id codec, std::size_t n) {
  switch (codec) {
    case codec_id::none:
      return 4 * n;
    case codec_id::float16:
    case codec_id::bfloat16:
      return 2 * n;
    case codec_id::scaled_float16:
      return codecs::scaled_half_size(n);
    case codec_id::uniform8:
    case codec_id::quantile8:
      return codecs::table8_size(n);
    case codec_id::blockwise8:
      return codecs::blockwise8_size(n);
  }
  return 0;
}

} // namespace

std::span<const codec_id> all_codecs() {
  return codecs_in_order;
}

std::string_view to_string(codec_id codec) {
  switch (codec) {
    case codec_id::none:
      return "none";
    case codec_id::float16:
      return "float16";
    case codec_id::bfloat16:
      return "bfloat16";
    case codec_id::scaled_float16:
      return "scaled_float16";
    case codec_id::uniform8:
      return "uniform8";
    case codec_id::quantile8:
      return "quantile8";
    case codec_id::blockwise8:
      return "blockwise8";
  }
  return "unknown";
}

std::string codec_names() {
  std::string all;
  for (auto codec : codecs_in_order)
    all.append(all.empty() ? "" : ", ").append(to_string(codec));
  return all;
}

result<codec_id> parse_codec(std::string_view name) {
  for (auto codec : codecs_in_order)
    if (to_string(codec) == name)
      return codec;
  return failure{ec::bad_config,
                 "'" + std::string{name} + "' is not a codec; there are: " + codec_names()};
}

bool is_known(codec_id codec) {
  return static_cast<std::size_t>(codec) < codecs_in_order.size();
}

std::size_t bytes_per_value(codec_id codec) {
  switch (codec) {
    case codec_id::none:
      return 4;
    case codec_id::float16:
    case codec_id::bfloat16:
    case codec_id::scaled_float16:
      return 2;
    case codec_id::uniform8:
    case codec_id::quantile8:
    case codec_id::blockwise8:
      return 1;
  }
  return 4;
}

std::size_t values_per_part(codec_id codec, std::size_t part_bytes) {
  return part_bytes / bytes_per_value(codec);
}

codec_id written_as(codec_id codec, std::size_t elements) {
  return own_size(codec, elements) < 4 * elements ? codec : codec_id::none;
}

std::size_t encoded_size(codec_id codec, std::size_t elements) {
  return std::min(own_size(codec, elements), 4 * elements);
}

void encode(codec_id codec, std::span<const float> values, std::span<std::byte> out,
            instructions path) {
  WAGGLE_CHECK(is_known(codec) && out.size() == encoded_size(codec, values.size()),
               std::to_string(out.size()));
  if (values.empty())
    return;
  switch (written_as(codec, values.size())) {
    case codec_id::none:
      std::memcpy(out.data(), values.data(), out.size());
      return;
    case codec_id::float16:
      return codecs::to_halves(path, values.data(), values.size(), out.data());
    case codec_id::bfloat16:
      return codecs::to_bfloats(path, values.data(), values.size(), out.data());
    case codec_id::scaled_float16:
      return codecs::to_scaled_halves(path, values.data(), values.size(), out.data());
    case codec_id::uniform8:
      return codecs::to_uniform8(path, values.data(), values.size(), out.data());
    case codec_id::quantile8:
      return codecs::to_quantile8(path, values.data(), values.size(), out.data());
    case codec_id::blockwise8:
      return codecs::to_blockwise8(path, values.data(), values.size(), out.data());
  }
}

status decode(codec_id codec, byte_span bytes, std::span<float> out, instructions path) {
  auto reader = part_reader::open(codec, bytes, out.size(), path);
  if (!reader)
    return reader.error();
  reader->read(0, out);
  return done{};
}

} // namespace waggle
