#pragma once

#include <memory>
#include <utility>

#include "runtime/training/learner.hpp"
#include "runtime/training/resumable_learner.hpp"

namespace waggle {

/// Forwards everything to another learner: the base of learners that change one thing.
template <class Learner> // learner or local_learner
class forwarding_learner : public Learner, public wraps_learner {
public:
  explicit forwarding_learner(std::unique_ptr<Learner> inner) : inner_(std::move(inner)) {}

  [[nodiscard]] learner& wrapped() const override { return *inner_; }
  void use_vectors(std::shared_ptr<vector_pool> vectors) override {
    inner_->use_vectors(std::move(vectors));
  }
  micro_step accumulate() override { return inner_->accumulate(); }
  void apply(std::span<const float> gradient, double lr) override { inner_->apply(gradient, lr); }
  void merge_buffers(std::span<const float> mean, std::span<const float> contributed) override {
    inner_->merge_buffers(mean, contributed);
  }
  void take_metrics(std::span<const float> means, epoch_id epoch) override {
    inner_->take_metrics(means, epoch);
  }
  [[nodiscard]] std::optional<plateau_report> plateau_state() const override {
    return inner_->plateau_state();
  }
  status check_values(const byte_source& from, std::uint64_t at) const override {
    return inner_->check_values(from, at);
  }
  void read_tensor(std::size_t which, std::span<float> out) const override {
    inner_->read_tensor(which, out);
  }
  [[nodiscard]] std::span<const float> values_of(std::size_t which) const override {
    return inner_->values_of(which);
  }
  void write_tensor(std::size_t which, std::span<const float> values) override {
    inner_->write_tensor(which, values);
  }
  [[nodiscard]] std::uint64_t optimizer_steps() const override { return inner_->optimizer_steps(); }
  void set_optimizer_steps(std::uint64_t steps) override { inner_->set_optimizer_steps(steps); }
  [[nodiscard]] bool passes_beside_updates() const override {
    return inner_->passes_beside_updates();
  }
  [[nodiscard]] std::string own_state() const override { return inner_->own_state(); }
  status load_own_state(std::string_view own) override { return inner_->load_own_state(own); }
  [[nodiscard]] const state_table& tensors() const override { return inner_->tensors(); }
  [[nodiscard]] digest schema() const override { return inner_->schema(); }
  std::uint64_t take_mean_gradient(std::span<float> out) override {
    return inner_->take_mean_gradient(out);
  }
  learner::mean_gradient take_mean_vector(vector_pool& vectors) override {
    return inner_->take_mean_vector(vectors);
  }
  std::uint64_t drop_gradient() override { return inner_->drop_gradient(); }
  [[nodiscard]] std::uint64_t accumulated_samples() const override {
    return inner_->accumulated_samples();
  }
  [[nodiscard]] bool adds_in_place() const override { return inner_->adds_in_place(); }
  [[nodiscard]] bool waits_for_pass() const override { return inner_->waits_for_pass(); }

protected:
  [[nodiscard]] Learner& inner() const { return *inner_; }

private:
  std::unique_ptr<Learner> inner_;
};

/// The same for the functions that only a local_learner has.
template <class Base> // derived from forwarding_learner<local_learner>
class forwarding_local_learner : public Base {
public:
  using Base::Base;

  void step_locally(double lr) override { this->inner().step_locally(lr); }
  void add_change(std::span<const std::size_t> which, std::span<const float> mean,
                  std::span<const float> snapshot) override {
    this->inner().add_change(which, mean, snapshot);
  }
  std::uint64_t copy_tensors(std::span<const std::size_t> which,
                             std::span<float> out) const override {
    return this->inner().copy_tensors(which, out);
  }
  [[nodiscard]] bool copies_during_passes() const override {
    return this->inner().copies_during_passes();
  }
};

} // namespace waggle
