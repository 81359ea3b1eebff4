#include "runtime/codec/part_reader.hpp"

#include <cstring>
#include <string>

#include "runtime/codec/half.hpp"
#include "runtime/core/check.hpp"

namespace waggle {

result<part_reader> part_reader::open(codec_id codec, byte_span bytes, std::size_t elements,
                                      instructions path) {
  if (!is_known(codec) || bytes.size() != encoded_size(codec, elements))
    return ec::wrong_shape;
  return part_reader{codec, bytes, elements, path};
}

void part_reader::read(std::size_t begin, std::span<float> out) const {
  auto n = out.size();
  WAGGLE_CHECK(begin <= elements_ && n <= elements_ - begin, std::to_string(begin) + " + "
                                                               + std::to_string(n) + " of "
                                                               + std::to_string(elements_));
  if (n == 0)
    return;
  switch (codec_) {
    case codec_id::none:
      std::memcpy(out.data(), bytes_.data() + 4 * begin, 4 * n);
      return;
    case codec_id::float16:
      codecs::from_halves(path_, bytes_.data() + 2 * begin, n, out.data());
      return;
  }
}

const float* part_reader::view(std::size_t begin, std::span<float> scratch) const {
  if (codec_ == codec_id::none) {
    const auto* at = bytes_.data() + 4 * begin;
    if (reinterpret_cast<std::uintptr_t>(at) % alignof(float) == 0) {
      WAGGLE_CHECK(begin <= elements_ && scratch.size() <= elements_ - begin,
                   std::to_string(begin));
      return reinterpret_cast<const float*>(at);
    }
  }
  read(begin, scratch);
  return scratch.data();
}

} // namespace waggle
