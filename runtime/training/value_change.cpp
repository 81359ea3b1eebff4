#include "runtime/training/value_change.hpp"

#include "runtime/core/check.hpp"
#include "runtime/core/vectorized.hpp"
#include "runtime/training/learner.hpp"

namespace waggle {

namespace {

WAGGLE_VECTORIZED void change(float* __restrict values, const float* __restrict mean,
                              const float* __restrict snapshot, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i)
    values[i] = changed(values[i], mean[i], snapshot[i], false);
}

void change_squares(float* values, const float* mean, const float* snapshot, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i)
    values[i] = changed(values[i], mean[i], snapshot[i], true);
}

} // namespace

void change_values(std::span<float> values, std::span<const float> mean,
                   std::span<const float> snapshot, bool square) {
  WAGGLE_CHECK(mean.size() == values.size() && snapshot.size() == values.size(),
               "a change has the values of its tensor");
  (square ? change_squares : change)(values.data(), mean.data(), snapshot.data(), values.size());
}

} // namespace waggle
