#pragma once

#include "runtime/core/bytes.hpp"

namespace waggle {

/// What one frame between two peers may hold. Checked before anything is allocated for it.
constexpr std::size_t frame_header_bytes_max = 256_KiB; // the encoded message
constexpr std::size_t frame_body_bytes_max = 16_MiB;    // raw bytes

} // namespace waggle
