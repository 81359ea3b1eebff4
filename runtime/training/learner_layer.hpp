#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "runtime/training/learner.hpp"

namespace waggle {

/// A tensor that a layer adds to the state. Called on the computing thread.
struct own_tensor {
  state_tensor what;
  /// The values, valid until the next call.
  std::function<std::span<const float>()> values;
  /// A state is being loaded. REQUIRES: `check` has succeeded.
  std::function<void(std::span<const float>)> write;
  /// learner::check_values, of a small tensor; null: all values are good.
  std::function<status(std::span<const float>)> check{};
};

/// One whose values are a member of the layer, as long as it lives.
own_tensor kept_tensor(state_tensor what, std::function<std::span<float>()> values);

/// One that stands for something else: `encode` returns its values, and `become` gets what `decode`
/// makes of those that are loaded, unless that is a failure.
template <class Encode, class Decode, class Become>
own_tensor coded_tensor(state_tensor what, Encode encode, Decode decode, Become become) {
  return {std::move(what),
          [encode, coded = decltype(encode()){}]() mutable {
            coded = encode();
            return std::span<const float>{coded};
          },
          [=](std::span<const float> values) { become(*decode(values)); },
          [=](std::span<const float> values) -> status {
            auto decoded = decode(values);
            return decoded ? status{done{}} : decoded.error();
          }};
}

/// A learner on top of another one, which does what this one does not change: the base of those
/// that add a step to each update, or tensors to the state.
class learner_layer : public learner {
public:
  /// `own`: tensors that are added to the state, each behind the others of its group
  /// (state_tensor::group). Its schema then begins with `mark`. `below` is a reference, so that it
  /// can be asked for its tensors in the same call.
  explicit learner_layer(std::unique_ptr<learner>&& below, std::vector<own_tensor> own = {},
                         std::string mark = {});

  [[nodiscard]] learner& below() const { return *below_; }

  void use_vectors(std::shared_ptr<vector_pool> vectors) override;
  micro_step accumulate() override { return below_->accumulate(); }
  void apply(std::span<const float> gradient, double lr) override;
  void step_locally(double lr) override;
  void read_tensor(std::size_t which, std::span<float> out) const override;
  [[nodiscard]] std::span<const float> values_of(std::size_t which) const override;
  void write_tensor(std::size_t which, std::span<const float> values) override;
  [[nodiscard]] std::uint64_t optimizer_steps() const override { return below_->optimizer_steps(); }
  void set_optimizer_steps(std::uint64_t steps) override { below_->set_optimizer_steps(steps); }
  status check_values(const tensor_reader& read) const override;
  [[nodiscard]] const state_table& tensors() const override { return tensors_; }
  [[nodiscard]] digest schema() const override;
  mean_gradient take_mean_vector(vector_pool& vectors, std::size_t room) override {
    return below_->take_mean_vector(vectors, room);
  }
  std::uint64_t drop_gradient() override { return below_->drop_gradient(); }
  [[nodiscard]] std::uint64_t accumulated_samples() const override {
    return below_->accumulated_samples();
  }

protected:
  // -- a step of each update, local ones included. The computing thread

  struct update {
    std::span<const float> gradient; // may be replaced, but not written to: others read it, too
    double lr;
  };
  virtual void before_update(update& /*next*/) {}
  virtual void after_update() {}
  /// Whether `before_update` looks at the gradient; otherwise the learner below keeps that of a
  /// local step where it is.
  [[nodiscard]] virtual bool needs_gradient() const { return false; }

  [[nodiscard]] vector_pool& vectors() const { return *vectors_; }

private:
  struct place {
    const own_tensor* own; // null: one of the learner below
    std::size_t below = 0; // its index there
  };

  const std::unique_ptr<learner> below_;
  const std::vector<own_tensor> own_;
  const std::string mark_;
  std::vector<place> places_; // of each tensor
  state_table tensors_;
  std::shared_ptr<vector_pool> vectors_ = vector_pool::make(1);
};

/// Makes a `Layer` on top of each learner of `make`. With `refusal`, these must step locally;
/// otherwise the result fails with ec::bad_config and this sentence.
template <class Layer, class... Arguments>
learner_factory layered(learner_factory make, std::string refusal, Arguments... arguments) {
  return [=]() -> result<std::unique_ptr<learner>> {
    auto below = make();
    if (!below)
      return below.error();
    if (!refusal.empty() && !(*below)->abilities().steps_locally)
      return failure{ec::bad_config, refusal};
    return std::unique_ptr<learner>{std::make_unique<Layer>(std::move(*below), arguments...)};
  };
}

} // namespace waggle
