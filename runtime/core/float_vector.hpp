#pragma once

#include <memory_resource>
#include <vector>

namespace waggle {

/// Many values, in memory that vector_pool chose: the heap, or shared memory that peers on this
/// host can read without a copy. Copies and moves into a new vector go to the heap.
using float_vector = std::pmr::vector<float>;

} // namespace waggle
