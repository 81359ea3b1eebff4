#include "runtime/codec/part_reader.hpp"

#include <cstring>
#include <string>

#include "runtime/codec/blockwise8.hpp"
#include "runtime/codec/half.hpp"
#include "runtime/codec/scaled_half.hpp"
#include "runtime/codec/table8.hpp"
#include "runtime/core/check.hpp"

namespace waggle {

result<part_reader> part_reader::open(codec_id codec, byte_span bytes, std::size_t elements,
                                      instructions path) {
  // The comparison of sizes also bounds `elements` by the number of bytes received.
  if (!is_known(codec) || elements > 4 * bytes.size()
      || bytes.size() != encoded_size(codec, elements))
    return ec::wrong_shape;
  part_reader out{written_as(codec, elements), bytes, elements, path};
  switch (out.form_) {
    case codec_id::none:
    case codec_id::float16:
    case codec_id::bfloat16:
      break;
    case codec_id::scaled_float16: {
      auto scale = codecs::read_half_scale(bytes.data());
      if (!scale)
        return scale.error();
      out.mean_ = scale->mean;
      out.deviation_ = scale->deviation;
      break;
    }
    case codec_id::uniform8:
    case codec_id::quantile8:
      if (auto sound = codecs::check_codebook(bytes.data()); !sound)
        return sound.error();
      break;
    case codec_id::blockwise8:
      if (auto sound = codecs::check_block_maxima(bytes.data(), elements); !sound)
        return sound.error();
      break;
  }
  return out;
}

void part_reader::check_range(std::size_t begin, std::size_t count) const {
  WAGGLE_CHECK(begin <= elements_ && count <= elements_ - begin, std::to_string(begin) + " + "
                                                                   + std::to_string(count) + " of "
                                                                   + std::to_string(elements_));
}

void part_reader::read(std::size_t begin, std::span<float> out) const {
  auto n = out.size();
  check_range(begin, n);
  if (n == 0)
    return;
  const auto* bytes = bytes_.data();
  switch (form_) {
    case codec_id::none:
      std::memcpy(out.data(), bytes + 4 * begin, 4 * n);
      return;
    case codec_id::float16:
      return codecs::from_halves(path_, bytes + 2 * begin, n, out.data());
    case codec_id::bfloat16:
      return codecs::from_bfloats(path_, bytes + 2 * begin, n, out.data());
    case codec_id::scaled_float16:
      return codecs::from_scaled_halves(path_, {mean_, deviation_}, bytes + 8 + 2 * begin, n,
                                        out.data());
    case codec_id::uniform8:
    case codec_id::quantile8:
      return codecs::look_up(bytes, bytes + codecs::table_bytes + begin, n, out.data());
    case codec_id::blockwise8:
      return codecs::from_blockwise8(bytes, elements_, begin, n, out.data());
  }
}

const float* part_reader::view(std::size_t begin, std::span<float> scratch) const {
  if (form_ == codec_id::none && !scratch.empty()) {
    check_range(begin, scratch.size());
    const auto* at = bytes_.data() + 4 * begin;
    if (reinterpret_cast<std::uintptr_t>(at) % alignof(float) == 0)
      return reinterpret_cast<const float*>(at);
  }
  read(begin, scratch);
  return scratch.data();
}

} // namespace waggle
