#pragma once

#include <algorithm>
#include <cstdint>
#include <span>

#include "runtime/codec/codec.hpp"

namespace waggle {

/// A range of a vector that is encoded as one part.
struct coded_part {
  std::uint64_t offset = 0; // in values
  std::uint32_t count = 0;
  codec_id codec = codec_id::none;
};

inline bool is_lossy(std::span<const coded_part> parts) {
  return std::any_of(parts.begin(), parts.end(),
                     [](const coded_part& part) { return part.codec != codec_id::none; });
}

/// Writes to `carried` what a receiver of the parts of `values` decodes: decode(encode(part)) of
/// each. REQUIRES: equal lengths; no overlap; `parts` are in order and cover `values`, which are
/// finite.
void write_carried(std::span<const float> values, std::span<const coded_part> parts,
                   std::span<float> carried);

} // namespace waggle
