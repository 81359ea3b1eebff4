// Layers that add a step to each update.

#include <cmath>

#include "runtime/training/layers.hpp"
#include "runtime/training/learner_layer.hpp"

namespace waggle {

namespace {

class scaled_learner final : public learner_layer {
public:
  scaled_learner(std::unique_ptr<learner> below, std::shared_ptr<loss_scaler> scale)
    : learner_layer(std::move(below)), scale_(std::move(scale)) {}

  micro_step accumulate_in_buckets(const early_gradient& when) override {
    return below().accumulate_in_buckets(when);
  }
  [[nodiscard]] std::string own_state() const override { return scale_->save(); }
  status load_own_state(std::string_view own) override { return scale_->load(own); }

protected:
  void after_update() override { scale_->on_update(); }

private:
  const std::shared_ptr<loss_scaler> scale_;
};

class clipping_learner final : public learner_layer {
public:
  clipping_learner(std::unique_ptr<learner> below, double norm_max)
    : learner_layer(std::move(below)), norm_max_(norm_max) {}

  micro_step accumulate_in_buckets(const early_gradient& when) override {
    return below().accumulate_in_buckets(when);
  }

protected:
  [[nodiscard]] bool needs_gradient() const override { return true; }
  void before_update(update& next) override {
    auto factor = clip_factor(next.gradient, norm_max_);
    if (factor == 1)
      return;
    shorter_ = vectors().take(next.gradient.size());
    for (std::size_t i = 0; i < shorter_->size(); ++i)
      (*shorter_)[i] = next.gradient[i] * static_cast<float>(factor);
    next.gradient = *shorter_;
  }
  void after_update() override { shorter_.reset(); }

private:
  const double norm_max_;
  std::shared_ptr<float_vector> shorter_; // during an update
};

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
  return layered<clipping_learner>(std::move(make), "", norm_max);
}

learner_factory with_loss_scale(learner_factory make, std::shared_ptr<loss_scaler> scale) {
  return scale ? layered<scaled_learner>(std::move(make), "", scale) : make;
}

} // namespace waggle
