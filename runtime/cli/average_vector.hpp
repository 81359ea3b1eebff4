#pragma once

#include <memory>

#include "runtime/core/ids.hpp"
#include "runtime/core/vector_pool.hpp"

namespace waggle {

/// The peer's contribution to every round of `waggle average`: values in [-1, 1) that depend only
/// on its id and the index, so that the result can be computed from the ids of the contributors.
/// Taken from `pool`.
inline std::shared_ptr<const float_vector>
average_vector_of(const peer_id& peer, std::size_t elements, vector_pool& pool) {
  std::uint64_t seed = 0;
  for (std::size_t i = 0; i < 8; ++i)
    seed = seed << 8U | std::to_integer<std::uint64_t>(peer.bytes[i]);
  auto values = pool.take(elements);
  for (std::size_t i = 0; i < elements; ++i) {
    std::uint64_t x = seed + i * 0x9e3779b97f4a7c15U; // splitmix64
    x = (x ^ (x >> 30U)) * 0xbf58476d1ce4e5b9U;
    x = (x ^ (x >> 27U)) * 0x94d049bb133111ebU;
    (*values)[i] = static_cast<float>((x ^ (x >> 31U)) >> 40U) / 8388608.0F - 1.0F;
  }
  return values;
}

} // namespace waggle
