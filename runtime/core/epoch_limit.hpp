#pragma once

#include <cstdint>

namespace waggle {

/// Claims of a later epoch are refused: no run gets there (at a thousand epochs a second it takes
/// nine thousand years), and the epochs after it can still be counted without wrapping to 0.
constexpr std::uint64_t epoch_max = std::uint64_t{1} << 48U;

} // namespace waggle
