#include "runtime/training/averaged_gradients.hpp"

#include <algorithm>
#include <memory>
#include <mutex>
#include <vector>

#include "runtime/core/check.hpp"
#include "runtime/core/float_vector.hpp"
#include "runtime/crypto/digest.hpp"
#include "runtime/training/forwarding_learner.hpp"
#include "runtime/training/local_learner.hpp"

namespace waggle {

namespace {

std::vector<state_tensor> with_gradients(const state_table& inner) {
  auto all = inner.tensors();
  for (std::size_t i = 0; i < inner.size() && inner[i].what == state_tensor::kind::parameter; ++i)
    all.push_back({"gradient/" + inner[i].name, inner[i].shape, state_tensor::kind::gradient});
  return all;
}

/// Its gradients are behind all tensors of the inner learner, in the order of the parameters.
/// `values_` is locked before the inner learner's: a copy has the parameters and the gradient of
/// the same step.
class gradient_averaging_learner final : public forwarding_learner<local_learner> {
public:
  explicit gradient_averaging_learner(std::unique_ptr<local_learner> inner)
    : forwarding_learner(std::move(inner)), tensors_(with_gradients(this->inner().tensors())),
      of_inner_(this->inner().tensors().size()), taken_(this->inner().gradient_count()),
      gradient_(std::span{taken_}.first(this->inner().parameter_count())) {
    forget();
  }

  [[nodiscard]] const state_table& tensors() const override { return tensors_; }
  [[nodiscard]] digest schema() const override {
    return sha256_stream{}.add("waggle averaged gradients 1").add(inner().schema().view()).finish();
  }

  void step_locally(double lr) override {
    std::lock_guard lock{values_};
    if (accumulated_samples() == 0 || take_mean_gradient(taken_) == 0) // or dropped just now
      return;
    if (correction_.empty())
      return inner().apply(gradient_, lr);
    for (std::size_t i = 0; i < correction_.size(); ++i)
      correction_[i] += gradient_[i];
    inner().apply(correction_, lr);
    correction_.clear();
  }

  void add_change(std::span<const std::size_t> which, std::span<const float> mean,
                  std::span<const float> snapshot) override {
    auto tensors = tensors_of_inner(which);
    auto values = values_in(which.first(tensors));
    std::lock_guard lock{values_};
    inner().add_change(which.first(tensors), mean.first(values), snapshot.first(values));
    if (tensors == which.size())
      return;
    WAGGLE_CHECK(values_in(which.subspan(tensors)) == gradient_.size()
                   && mean.size() == values + gradient_.size() && snapshot.size() == mean.size(),
                 "a part of the gradient, or more than it");
    change(mean.subspan(values), snapshot.subspan(values));
  }
  std::uint64_t copy_tensors(std::span<const std::size_t> which,
                             std::span<float> out) const override {
    auto tensors = tensors_of_inner(which);
    auto values = values_in(which.first(tensors));
    std::lock_guard lock{values_};
    auto changes = inner().copy_tensors(which.first(tensors), out.first(values));
    out = out.subspan(values);
    for (auto i : which.subspan(tensors)) {
      auto from = values_of(i);
      std::copy(from.begin(), from.end(), out.begin());
      out = out.subspan(from.size());
    }
    return changes;
  }
  [[nodiscard]] bool copies_during_passes() const override {
    return inner().copies_during_passes();
  }

  void read_tensor(std::size_t which, std::span<float> out) const override {
    if (which < of_inner_)
      return inner().read_tensor(which, out);
    auto from = values_of(which);
    std::copy(from.begin(), from.end(), out.begin());
  }
  [[nodiscard]] std::span<const float> values_of(std::size_t which) const override {
    if (which < of_inner_)
      return inner().values_of(which);
    auto parameter = which - of_inner_;
    return std::span<const float>{gradient_}.subspan(
      static_cast<std::size_t>(tensors_.offset(parameter)),
      static_cast<std::size_t>(tensors_[parameter].elements()));
  }
  /// A state is being loaded: the gradient in it is that of the peer that wrote it, and the
  /// parameters are not those of our last step.
  void write_tensor(std::size_t which, std::span<const float> values) override {
    if (which < of_inner_)
      return inner().write_tensor(which, values);
    std::lock_guard lock{values_};
    forget();
  }

private:
  /// The number of tensors in front of the gradients.
  [[nodiscard]] std::size_t tensors_of_inner(std::span<const std::size_t> which) const {
    auto first =
      std::find_if(which.begin(), which.end(), [this](std::size_t i) { return i >= of_inner_; });
    return static_cast<std::size_t>(first - which.begin());
  }
  [[nodiscard]] std::size_t values_in(std::span<const std::size_t> which) const {
    std::size_t values = 0;
    for (auto i : which)
      values += static_cast<std::size_t>(tensors_[i].elements());
    return values;
  }

  void change(std::span<const float> mean, std::span<const float> snapshot) {
    change_gradient(gradient_, mean, snapshot);
    if (std::equal(mean.begin(), mean.end(), snapshot.begin()))
      return; // this peer is alone: it keeps the bits of a plain loop
    correction_.resize(gradient_.size(), 0.0F);
    for (std::size_t i = 0; i < correction_.size(); ++i)
      correction_[i] += mean[i] - snapshot[i];
  }

  void forget() {
    std::fill(gradient_.begin(), gradient_.end(), 0.0F);
    correction_.clear();
  }

  // -- constant
  state_table tensors_;
  std::size_t of_inner_; // the number of its tensors
  // -- guarded by values_ while they change
  float_vector taken_;        // what the last step took: its gradient, then the buffers
  std::span<float> gradient_; // in taken_
  float_vector correction_;   // of the next step; empty: none
};

} // namespace

learner_factory with_averaged_gradients(learner_factory make, bool enabled) {
  if (!enabled)
    return make;
  return [make = std::move(make)]() -> result<std::unique_ptr<learner>> {
    auto inner = make();
    if (!inner)
      return inner.error();
    auto* local = dynamic_cast<local_learner*>(inner->get());
    if (local == nullptr)
      return failure{ec::bad_config, "this model cannot step locally: leave out "
                                     "--average-gradients"};
    inner->release();
    return std::unique_ptr<learner>{
      std::make_unique<gradient_averaging_learner>(std::unique_ptr<local_learner>{local})};
  };
}

} // namespace waggle
