#pragma once

#include <cstring>
#include <memory>
#include <vector>

#include "runtime/core/check.hpp"
#include "runtime/training/learner.hpp"
#include "runtime/training/training_state.hpp"

namespace waggle::testing {

// Whole states in memory, for models that are small.

inline std::vector<std::byte> save_state(const learner& model) {
  auto image = make_memory_store();
  WAGGLE_CHECK(model.save_state_to(*image, 0).ok(), "memory can be written");
  auto bytes = *read_all(*image);
  return {bytes.view().begin(), bytes.view().end()};
}

inline status load_state(learner& model, byte_span state) {
  return model.load_state_from(borrowed_bytes{state}, 0);
}

/// The whole image, with `state.learner`.
inline payload encode_state(const training_state& state) {
  auto image = make_memory_store();
  WAGGLE_CHECK(image->write(state_header_bytes, state.learner).ok()
                 && seal_state_in(state, *image).ok(),
               "memory can be written");
  return *read_all(*image);
}

/// The parameters in the image of a state with this table.
inline byte_span parameters_in(const state_table& table, byte_span image) {
  return image.subspan(table.header_bytes(), table.parameter_count() * sizeof(float));
}
inline std::vector<float> parameters_of(const learner& model) {
  auto state = save_state(model);
  auto bytes = parameters_in(model.tensors(), state);
  std::vector<float> values(model.parameter_count());
  std::memcpy(values.data(), bytes.data(), bytes.size());
  return values;
}

} // namespace waggle::testing
