#include "runtime/codec/coded_part.hpp"

#include <string>
#include <vector>

#include "runtime/core/check.hpp"

namespace waggle {

void write_carried(std::span<const float> values, std::span<const coded_part> parts,
                   std::span<float> carried) {
  std::vector<std::byte> bytes;
  std::uint64_t covered = 0;
  for (const auto& part : parts) {
    WAGGLE_CHECK(part.offset == covered && part.count <= values.size() - covered,
                 std::to_string(part.offset) + " + " + std::to_string(part.count));
    covered += part.count;
    bytes.resize(encoded_size(part.codec, part.count));
    encode(part.codec, values.subspan(part.offset, part.count), bytes);
    auto decoded = decode(part.codec, bytes, carried.subspan(part.offset, part.count));
    WAGGLE_CHECK(decoded.ok(), "a part that was just encoded does not decode");
  }
  WAGGLE_CHECK(covered == values.size() && covered == carried.size(), std::to_string(covered));
}

} // namespace waggle
