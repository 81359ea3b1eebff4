#include "runtime/codec/part_reader.hpp"

#include <string>

#include "runtime/core/check.hpp"

namespace waggle {

result<part_reader> part_reader::open(codec_id codec, byte_span bytes, std::size_t elements,
                                      instructions path) {
  // No codec carries 64 values in a byte, so that sizes cannot overflow.
  if (!is_known(codec) || elements / 64 > bytes.size()
      || bytes.size() != encoded_size(codec, elements))
    return ec::wrong_shape;
  const auto& form = *codec_table[static_cast<std::size_t>(written_as(codec, elements))];
  if (form.check != nullptr)
    if (auto sound = form.check(bytes.data(), elements); !sound)
      return sound.error();
  return part_reader{form, bytes, elements, path};
}

void part_reader::check_range(std::size_t begin, std::size_t count) const {
  WAGGLE_CHECK(begin <= elements_ && count <= elements_ - begin, std::to_string(begin) + " + "
                                                                   + std::to_string(count) + " of "
                                                                   + std::to_string(elements_));
}

void part_reader::read(std::size_t begin, std::span<float> out) const {
  check_range(begin, out.size());
  if (!out.empty())
    form_->read(path_, bytes_.data(), elements_, begin, out.size(), out.data());
}

std::size_t part_reader::kept(std::size_t chunk, std::span<std::uint16_t, sparse_chunk> places,
                              std::span<float, sparse_chunk> values) const {
  WAGGLE_CHECK(is_sparse(), std::string{form_->name});
  check_range(chunk * sparse_chunk, 1);
  return form_->kept(bytes_.data(), elements_, chunk, places.data(), values.data());
}

const float* part_reader::view(std::size_t begin, std::span<float> scratch) const {
  if (form_->id == codec_id::none && !scratch.empty()) {
    check_range(begin, scratch.size());
    const auto* at = bytes_.data() + 4 * begin;
    if (reinterpret_cast<std::uintptr_t>(at) % alignof(float) == 0)
      return reinterpret_cast<const float*>(at);
  }
  read(begin, scratch);
  return scratch.data();
}

} // namespace waggle
