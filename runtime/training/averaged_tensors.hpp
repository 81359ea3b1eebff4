#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "runtime/codec/codec_choice.hpp"
#include "runtime/core/result.hpp"
#include "runtime/training/state_table.hpp"
#include "runtime/training/strategy.hpp"

namespace waggle {

/// The tensors of a state that a lane averages, one after another in one vector: the parameters (or
/// their gradients), each of the lane's statistics, the buffers. Immutable.
class averaged_tensors {
public:
  /// Fails with ec::bad_config if the optimizer does not keep one of the lane's statistics.
  static result<std::shared_ptr<const averaged_tensors>> of(const state_table& state,
                                                            const lane& averages);

  /// Indices in the state's table, in the vector's order.
  [[nodiscard]] std::span<const std::size_t> indices() const { return indices_; }
  [[nodiscard]] std::size_t value_count() const { return values_; }
  /// For codecs that differ by tensor.
  [[nodiscard]] const std::shared_ptr<const std::vector<tensor_info>>& infos() const {
    return infos_;
  }

  /// Adds a change to values of this vector, as local_learner::add_change does to the tensors.
  void add_change(std::span<float> values, std::span<const float> mean,
                  std::span<const float> snapshot) const;

private:
  averaged_tensors() = default;

  std::vector<std::size_t> indices_;
  std::size_t values_ = 0;
  std::vector<bool> squares_; // by tensor
  std::shared_ptr<const std::vector<tensor_info>> infos_;
};

} // namespace waggle
