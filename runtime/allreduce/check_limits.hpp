#pragma once

#include <cstddef>

namespace waggle {

/// Challenges of one member that are kept until the key that draws the checks is known here. The
/// first wrong part convicts a reducer, so more are not needed.
constexpr std::size_t early_challenges_max = 1024;

} // namespace waggle
