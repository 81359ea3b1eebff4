#include "runtime/codec/codec.hpp"

#include <cstring>
#include <string>

#include "runtime/codec/half.hpp"
#include "runtime/codec/part_reader.hpp"
#include "runtime/core/check.hpp"

namespace waggle {

std::string_view to_string(codec_id codec) {
  switch (codec) {
    case codec_id::none:
      return "none";
    case codec_id::float16:
      return "float16";
  }
  return "unknown";
}

result<codec_id> parse_codec(std::string_view name) {
  for (auto codec : {codec_id::none, codec_id::float16})
    if (to_string(codec) == name)
      return codec;
  return failure{ec::bad_config, "'" + std::string{name} + "' is not a codec: none or float16"};
}

bool is_known(codec_id codec) {
  return codec == codec_id::none || codec == codec_id::float16;
}

std::size_t encoded_size(codec_id codec, std::size_t elements) {
  switch (codec) {
    case codec_id::none:
      return elements * 4;
    case codec_id::float16:
      return elements * 2;
  }
  return 0;
}

void encode(codec_id codec, std::span<const float> values, std::span<std::byte> out,
            instructions path) {
  WAGGLE_CHECK(out.size() == encoded_size(codec, values.size()), std::to_string(out.size()));
  if (values.empty())
    return;
  switch (codec) {
    case codec_id::none:
      std::memcpy(out.data(), values.data(), out.size());
      return;
    case codec_id::float16:
      codecs::to_halves(path, values.data(), values.size(), out.data());
      return;
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
