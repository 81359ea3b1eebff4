#pragma once

namespace waggle {

/// Semantic version of this build. CMakeLists.txt has the same value; a test compares them.
constexpr const char* version = "0.1.0";

} // namespace waggle
