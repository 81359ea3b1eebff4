#include "runtime/training/clipping.hpp"

#include <cmath>

#include "runtime/training/forwarding_learner.hpp"
#include "runtime/training/local_learner.hpp"

namespace waggle {

namespace {

template <class Learner>
class clipping_learner : public forwarding_learner<Learner> {
public:
  clipping_learner(std::unique_ptr<Learner> inner, double norm_max)
    : forwarding_learner<Learner>(std::move(inner)), norm_max_(norm_max) {}

  void use_vectors(std::shared_ptr<vector_pool> vectors) override {
    vectors_ = vectors;
    forwarding_learner<Learner>::use_vectors(std::move(vectors));
  }

  void apply(std::span<const float> gradient, double lr) override {
    auto factor = clip_factor(gradient, norm_max_);
    if (factor == 1)
      return forwarding_learner<Learner>::apply(gradient, lr);
    // The gradient is shared with other readers, so it is copied.
    auto shorter = take(gradient.size());
    for (std::size_t i = 0; i < gradient.size(); ++i)
      (*shorter)[i] = gradient[i] * static_cast<float>(factor);
    forwarding_learner<Learner>::apply(*shorter, lr);
  }

protected:
  [[nodiscard]] std::shared_ptr<float_vector> take(std::size_t values) const {
    return vectors_ ? vectors_->take(values) : std::make_shared<float_vector>(values);
  }

private:
  double norm_max_;
  std::shared_ptr<vector_pool> vectors_; // null: use the heap
};

class clipping_local_learner final
  : public forwarding_local_learner<clipping_learner<local_learner>> {
public:
  using forwarding_local_learner::forwarding_local_learner;

  void step_locally(double lr) override {
    auto mean = take(gradient_count());
    if (take_mean_gradient(*mean) > 0)
      apply(std::span<const float>{*mean}.first(parameter_count()), lr);
  }
};

std::unique_ptr<learner> clip(std::unique_ptr<learner> inner, double norm_max) {
  auto* local = dynamic_cast<local_learner*>(inner.get());
  if (local == nullptr)
    return std::make_unique<clipping_learner<learner>>(std::move(inner), norm_max);
  inner.release();
  return std::make_unique<clipping_local_learner>(std::unique_ptr<local_learner>{local}, norm_max);
}

} // namespace

double clip_factor(std::span<const float> gradient, double norm_max) {
  constexpr std::size_t lanes = 8; // sums that need not wait for each other
  double sums[lanes] = {};
  std::size_t i = 0;
  for (; i + lanes <= gradient.size(); i += lanes)
    for (std::size_t lane = 0; lane < lanes; ++lane)
      sums[lane] +=
        static_cast<double>(gradient[i + lane]) * static_cast<double>(gradient[i + lane]);
  for (; i < gradient.size(); ++i)
    sums[0] += static_cast<double>(gradient[i]) * static_cast<double>(gradient[i]);
  double sum = 0;
  for (double part : sums)
    sum += part;
  auto norm = std::sqrt(sum);
  return std::isfinite(norm) && norm > norm_max ? norm_max / norm : 1;
}

learner_factory clipped(learner_factory make, double norm_max) {
  if (norm_max == 0)
    return make;
  return [make = std::move(make), norm_max]() -> result<std::unique_ptr<learner>> {
    auto inner = make();
    if (!inner)
      return inner.error();
    return clip(std::move(*inner), norm_max);
  };
}

} // namespace waggle
