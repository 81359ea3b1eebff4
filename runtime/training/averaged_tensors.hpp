#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "runtime/codec/codec_choice.hpp"
#include "runtime/core/result.hpp"
#include "runtime/training/state_table.hpp"
#include "runtime/training/step_count.hpp"
#include "runtime/training/strategy.hpp"

namespace waggle {

/// The tensors of a state that a lane averages, one after another in one vector: the parameters (or
/// their gradients), each of the lane's statistics, the buffers, and behind gradients the metrics,
/// or behind parameters the gradients of the last step (lane::gradients). Values that belong to no
/// tensor: between buffers and metrics the update_terms, and if the lane counts steps, step_values
/// at the end. Immutable.
class averaged_tensors {
public:
  /// Those of the epochs whose number leaves `turn` when divided by lane::fragments. Fails with
  /// ec::bad_config if the optimizer does not keep one of the lane's statistics, if the model keeps
  /// no gradient of its last step, or if there are more fragments than parameters.
  static result<std::shared_ptr<const averaged_tensors>>
  of(const state_table& state, const lane& averages, std::size_t turn = 0);

  /// The buffers alone, which follow the gradient.
  static std::shared_ptr<const averaged_tensors> buffers_of(const state_table& state);

  /// Indices in the state's table, in the vector's order.
  [[nodiscard]] std::span<const std::size_t> indices() const { return indices_; }
  [[nodiscard]] std::size_t value_count() const {
    return tensor_values_ + terms_ + (steps_ ? step_values : 0);
  }
  /// The parameters, or their gradients, which come first.
  [[nodiscard]] std::size_t parameter_count() const { return parameters_; }
  /// Those of the tensors. They come first where parameters are averaged.
  [[nodiscard]] std::size_t tensor_value_count() const { return tensor_values_; }
  [[nodiscard]] bool counts_steps() const { return steps_; }
  /// Those in front of the gradients of the last step: the values of the model itself.
  [[nodiscard]] std::size_t model_value_count() const { return tensor_values_ - last_gradient_; }
  /// For codecs that differ by tensor.
  [[nodiscard]] std::shared_ptr<const std::vector<tensor_info>> infos() const { return infos_; }

  /// Adds a change to values of this vector, as learner::add_change does to the tensors.
  /// Without a snapshot, they become the mean. See change_gradient for the gradients.
  void add_change(std::span<float> values, std::span<const float> mean,
                  std::span<const float> snapshot) const;

private:
  averaged_tensors() = default;

  void add(const state_table& state, std::size_t i, tensor_role role);
  void add_buffers(const state_table& state);
  void add_all(const state_table& state, state_tensor::kind what, tensor_role role);

  std::vector<std::size_t> indices_;
  std::size_t parameters_ = 0;
  std::size_t tensor_values_ = 0;
  std::size_t terms_ = 0;         // the values of the update_terms
  std::size_t last_gradient_ = 0; // the values of the gradients of the last step
  bool steps_ = false;
  std::vector<change_rule> rules_; // by tensor
  std::shared_ptr<std::vector<tensor_info>> infos_ = std::make_shared<std::vector<tensor_info>>();
};

} // namespace waggle
