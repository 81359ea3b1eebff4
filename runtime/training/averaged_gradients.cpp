#include <algorithm>
#include <memory>
#include <mutex>
#include <vector>

#include "runtime/core/check.hpp"
#include "runtime/core/float_vector.hpp"
#include "runtime/training/layers.hpp"
#include "runtime/training/learner_layer.hpp"

namespace waggle {

namespace {

/// Its gradients are behind all tensors of the learner below, in the order of the parameters.
/// `values_` is locked before that learner's: a copy has the parameters and the gradient of the
/// same step.
class gradient_averaging_learner final : public learner_layer {
public:
  explicit gradient_averaging_learner(std::unique_ptr<learner> below)
    : learner_layer(std::move(below), gradients_of(this, below->tensors()),
                    "waggle averaged gradients 1"),
      of_below_(this->below().tensors().size()), gradient_(vectors().take(parameter_count())) {
    forget();
  }

  void step_locally(double lr) override {
    std::lock_guard lock{values_};
    if (accumulated_samples() == 0)
      return;
    auto mean = take_mean_vector(vectors(), 0);
    if (mean.samples == 0) // dropped just now
      return;
    gradient_ = std::move(mean.values);
    if (correction_.empty())
      return below().apply(gradient(), lr);
    for (std::size_t i = 0; i < correction_.size(); ++i)
      correction_[i] += gradient()[i];
    below().apply(correction_, lr);
    correction_.clear();
  }

  void add_change(std::span<const std::size_t> which, std::span<const float> mean,
                  std::span<const float> snapshot) override {
    auto tensors = tensors_of_below(which);
    auto values = values_in(which.first(tensors));
    std::lock_guard lock{values_};
    below().add_change(which.first(tensors), mean.first(values), snapshot.first(values));
    if (tensors == which.size())
      return;
    WAGGLE_CHECK(values_in(which.subspan(tensors)) == parameter_count()
                   && mean.size() == values + parameter_count() && snapshot.size() == mean.size(),
                 "a part of the gradient, or more than it");
    change(mean.subspan(values), snapshot.subspan(values));
  }
  std::optional<std::uint64_t> copy_tensors(std::span<const std::size_t> which,
                                            std::span<float> out) const override {
    auto tensors = tensors_of_below(which);
    auto values = values_in(which.first(tensors));
    std::lock_guard lock{values_};
    auto changes = below().copy_tensors(which.first(tensors), out.first(values));
    copy_tensors_of(*this, this->tensors(), which.subspan(tensors), out.subspan(values));
    return changes;
  }

private:
  static std::vector<own_tensor> gradients_of(gradient_averaging_learner* self,
                                              const state_table& all) {
    std::vector<own_tensor> own;
    for (auto i : all.indices_of({state_tensor::kind::parameter}))
      own.push_back({{"gradient/" + all[i].name, all[i].shape, state_tensor::kind::gradient},
                     [self, i]() -> std::span<const float> {
                       return self->gradient().subspan(
                         static_cast<std::size_t>(self->tensors().offset(i)),
                         static_cast<std::size_t>(self->tensors()[i].elements()));
                     },
                     // The gradient in a state is that of the peer that wrote it, and the
                     // parameters are not those of our last step.
                     [self](std::span<const float> /*values*/) {
                       std::lock_guard lock{self->values_};
                       self->forget();
                     }});
    return own;
  }
  [[nodiscard]] std::span<float> gradient() const {
    return std::span{*gradient_}.first(parameter_count());
  }
  /// The number of tensors in front of the gradients.
  [[nodiscard]] std::size_t tensors_of_below(std::span<const std::size_t> which) const {
    auto first =
      std::find_if(which.begin(), which.end(), [this](std::size_t i) { return i >= of_below_; });
    return static_cast<std::size_t>(first - which.begin());
  }
  [[nodiscard]] std::size_t values_in(std::span<const std::size_t> which) const {
    std::size_t values = 0;
    for (auto i : which)
      values += static_cast<std::size_t>(tensors()[i].elements());
    return values;
  }

  void change(std::span<const float> mean, std::span<const float> snapshot) {
    change_gradient(gradient(), mean, snapshot);
    if (std::equal(mean.begin(), mean.end(), snapshot.begin()))
      return; // this peer is alone: it keeps the bits of a plain loop
    correction_.resize(parameter_count(), 0.0F);
    for (std::size_t i = 0; i < correction_.size(); ++i)
      correction_[i] += mean[i] - snapshot[i];
  }

  void forget() {
    std::fill(gradient_->begin(), gradient_->end(), 0.0F);
    correction_.clear();
  }

  // -- constant
  std::size_t of_below_; // the number of its tensors
  // -- guarded by values_ while they change
  std::shared_ptr<float_vector> gradient_; // of the last step; behind it, buffers
  float_vector correction_;                // of the next step; empty: none
};

} // namespace

learner_factory with_averaged_gradients(learner_factory make, bool enabled) {
  if (!enabled)
    return make;
  return layered<gradient_averaging_learner>(
    std::move(make), "this model cannot step locally: leave out --average-gradients");
}

} // namespace waggle
