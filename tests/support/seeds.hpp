#pragma once

#include <cstdint>
#include <cstdlib>

namespace waggle::testing {

/// The number in this environment variable: other seeds than the default ones, or more of them.
inline std::uint64_t number_in(const char* variable, std::uint64_t otherwise) {
  const char* text = std::getenv(variable);
  return text != nullptr ? std::strtoull(text, nullptr, 10) : otherwise;
}

} // namespace waggle::testing
