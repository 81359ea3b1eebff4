#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "runtime/core/random.hpp"

namespace waggle::testing {

/// The bytes of a state; other seeds give other bytes.
inline std::shared_ptr<const std::vector<std::byte>> content_of(std::size_t size,
                                                                std::uint64_t seed) {
  auto out = std::make_shared<std::vector<std::byte>>(size);
  random_source{seed}.fill(*out);
  return out;
}

} // namespace waggle::testing
