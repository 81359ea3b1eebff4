#pragma once

#include <algorithm>
#include <iterator>
#include <vector>

namespace waggle {

/// For an even count: the upper of the two in the middle. REQUIRES: not empty.
template <class T>
T upper_median(std::vector<T> values) {
  auto middle = std::next(values.begin(), std::ssize(values) / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

} // namespace waggle
