#pragma once

#include <memory>

#include "runtime/core/ids.hpp"
#include "runtime/core/vector_pool.hpp"

namespace waggle {

/// The peer's contribution to every round of `waggle average`: values in [-1, 1) that depend only
/// on its id and the index, so that the result can be computed from the ids of the contributors.
/// Taken from `pool`.
std::shared_ptr<const float_vector> average_vector_of(const peer_id& peer, std::size_t elements,
                                                      vector_pool& pool);

} // namespace waggle
