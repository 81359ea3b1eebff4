#pragma once

#include <span>
#include <string>

#include "runtime/codec/codec.hpp"
#include "runtime/core/check.hpp"

namespace waggle {

/// Random access to the values of an encoded part, for sums that read many parts block by block.
/// Opening validates the untrusted bytes once; reading cannot fail, allocates nothing and copies
/// only the requested values.
///
/// The reader does not own the bytes: they must outlive it and must not change. Reading is const
/// and safe from several threads.
class part_reader {
public:
  /// Fails with ec::wrong_shape if `bytes` is not `encoded_size(codec, elements)` long or the codec
  /// is unknown, and with ec::malformed if no encoder writes its header or codebook. A part with
  /// values that are not finite opens successfully: they are found when they are read. `path` is
  /// for tests.
  static result<part_reader> open(codec_id codec, byte_span bytes, std::size_t elements,
                                  instructions path = best_instructions()) {
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

  [[nodiscard]] std::size_t elements() const { return elements_; }

  /// Writes the values [begin, begin + out.size()) to `out`. REQUIRES: they lie within the part.
  /// Any split into ranges gives the same bits as `decode` of the whole.
  void read(std::size_t begin, std::span<float> out) const {
    check_range(begin, out.size());
    if (!out.empty())
      form_->read(path_, bytes_.data(), elements_, begin, out.size(), out.data());
  }

  /// The same values, without a copy if the bytes are aligned floats already (codec none, or a part
  /// that is too small to gain from another codec). Otherwise they are read into `scratch`, whose
  /// size is the number of values.
  [[nodiscard]] const float* view(std::size_t begin, std::span<float> scratch) const {
    if (form_->id == codec_id::none && !scratch.empty()) {
      check_range(begin, scratch.size());
      const auto* at = bytes_.data() + 4 * begin;
      if (reinterpret_cast<std::uintptr_t>(at) % alignof(float) == 0)
        return reinterpret_cast<const float*>(at);
    }
    read(begin, scratch);
    return scratch.data();
  }

  /// Whether most values are 0, and `kept` has the others.
  [[nodiscard]] bool is_sparse() const { return form_->kept != nullptr; }
  /// Those of one chunk of sparse_chunk values, and their ascending places within it. Returns how
  /// many. REQUIRES: is_sparse; the chunk exists.
  std::size_t kept(std::size_t chunk, std::span<std::uint16_t, sparse_chunk> places,
                   std::span<float, sparse_chunk> values) const {
    WAGGLE_CHECK(is_sparse(), std::string{form_->name});
    check_range(chunk * sparse_chunk, 1);
    return form_->kept(bytes_.data(), elements_, chunk, places.data(), values.data());
  }

private:
  part_reader(const codec_row& form, byte_span bytes, std::size_t elements, instructions path)
    : form_(&form), path_(path), elements_(elements), bytes_(bytes) {}

  void check_range(std::size_t begin, std::size_t count) const {
    WAGGLE_CHECK(begin <= elements_ && count <= elements_ - begin,
                 std::to_string(begin) + " + " + std::to_string(count) + " of "
                   + std::to_string(elements_));
  }

  const codec_row* form_; // how the bytes are encoded: see written_as
  instructions path_;
  std::size_t elements_;
  byte_span bytes_;
};

} // namespace waggle
