#pragma once

#include <cstdint>

namespace waggle {

/// Semantic version of this build. CMakeLists.txt has the same value; a test compares them.
constexpr const char* version = "0.1.0";

/// Peers of different versions do not link.
constexpr std::uint32_t protocol_version = 12;

} // namespace waggle
