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

/// A learner on top of another one, to which it passes on what it does not change: the base of
/// those that add a step to each update, or tensors to the state.
class learner_layer : public learner {
public:
  /// `own`: tensors that are added to the state, each behind the others of its group
  /// (state_tensor::group). Its schema then begins with `mark`. `below` is a reference, so that it
  /// can be asked for its tensors in the same call.
  explicit learner_layer(std::unique_ptr<learner>&& below, std::vector<own_tensor> own = {},
                         std::string mark = {});

  [[nodiscard]] learner& below() const { return *below_; }

  void use_vectors(std::shared_ptr<vector_pool> vectors) override;
  void use_shared(std::shared_ptr<const shared_parameters> shared) override {
    below_->use_shared(std::move(shared));
  }
  micro_step accumulate() override { return below_->accumulate(); }
  void at_epoch(epoch_id now) override { below_->at_epoch(now); }
  void settle(std::span<const float> terms) override { below_->settle(terms); }
  void apply(std::span<const float> gradient, double lr) override;
  void step_locally(double lr) override;
  void add_change(std::span<const std::size_t> which, std::span<const float> mean,
                  std::span<const float> snapshot) override {
    below_->add_change(which, mean, snapshot);
  }
  void merge_buffers(std::span<const float> mean, std::span<const float> contributed) override {
    below_->merge_buffers(mean, contributed);
  }
  void take_metrics(std::span<const float> means, epoch_id epoch) override {
    below_->take_metrics(means, epoch);
  }
  void end_epoch(const decided_round& by) override { below_->end_epoch(by); }
  [[nodiscard]] std::optional<plateau_report> plateau_state() const override {
    return below_->plateau_state();
  }
  void read_tensor(std::size_t which, std::span<float> out) const override;
  [[nodiscard]] std::span<const float> values_of(std::size_t which) const override;
  void write_tensor(std::size_t which, std::span<const float> values) override;
  [[nodiscard]] std::uint64_t optimizer_steps() const override { return below_->optimizer_steps(); }
  void set_optimizer_steps(std::uint64_t steps) override { below_->set_optimizer_steps(steps); }
  [[nodiscard]] std::uint64_t rounding() const override { return below_->rounding(); }
  [[nodiscard]] std::string own_state() const override { return below_->own_state(); }
  status load_own_state(std::string_view own) override { return below_->load_own_state(own); }
  status load_position(std::string_view position) override {
    return below_->load_position(position);
  }
  [[nodiscard]] partial_gradient copy_gradient() const override { return below_->copy_gradient(); }
  status load_gradient(const partial_gradient& partial) override {
    return below_->load_gradient(partial);
  }
  status check_values(const byte_source& from, std::uint64_t at) const override;

  [[nodiscard]] bool resumes() const override { return below_->resumes(); }
  [[nodiscard]] bool keeps_gradient() const override { return below_->keeps_gradient(); }
  [[nodiscard]] std::string position() const override { return below_->position(); }
  [[nodiscard]] std::string taken_position() const override { return below_->taken_position(); }
  [[nodiscard]] bool steps_locally() const override { return below_->steps_locally(); }
  std::optional<std::uint64_t> copy_tensors(std::span<const std::size_t> which,
                                            std::span<float> out) const override {
    return below_->copy_tensors(which, out);
  }
  [[nodiscard]] bool copies_during_passes() const override {
    return below_->copies_during_passes();
  }
  [[nodiscard]] std::optional<sample_ledger> ledger() const override { return below_->ledger(); }
  [[nodiscard]] bool has_samples() const override { return below_->has_samples(); }
  [[nodiscard]] std::vector<float> strategy_state() const override {
    return below_->strategy_state();
  }
  [[nodiscard]] bool passes_beside_updates() const override {
    return below_->passes_beside_updates();
  }
  [[nodiscard]] const state_table& tensors() const override { return tensors_; }
  [[nodiscard]] digest schema() const override;
  mean_gradient take_mean_vector(vector_pool& vectors, std::size_t room) override {
    return below_->take_mean_vector(vectors, room);
  }
  std::uint64_t drop_gradient() override { return below_->drop_gradient(); }
  std::uint64_t take_back() override { return below_->take_back(); }
  [[nodiscard]] std::uint64_t accumulated_samples() const override {
    return below_->accumulated_samples();
  }
  [[nodiscard]] std::uint64_t outdated_samples() const override {
    return below_->outdated_samples();
  }
  [[nodiscard]] bool adds_in_place() const override { return below_->adds_in_place(); }
  [[nodiscard]] bool waits_for_pass() const override { return below_->waits_for_pass(); }

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
    if (!refusal.empty() && !(*below)->steps_locally())
      return failure{ec::bad_config, refusal};
    return std::unique_ptr<learner>{std::make_unique<Layer>(std::move(*below), arguments...)};
  };
}

} // namespace waggle
