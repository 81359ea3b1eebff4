#pragma once

#include <memory>

#include "runtime/core/ids.hpp"
#include "runtime/core/vector_pool.hpp"

namespace waggle {

/// What the peer contributes to every round of `waggle average`: values in [-1, 1) that depend on
/// its id and the index alone, so that whoever knows the contributors can tell the result. It lies
/// where vectors of `pool` do.
std::shared_ptr<const float_vector> average_vector_of(const peer_id& peer, std::size_t elements,
                                                      vector_pool& pool);

} // namespace waggle
