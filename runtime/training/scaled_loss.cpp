#include "runtime/training/scaled_loss.hpp"

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

} // namespace

learner_factory with_loss_scale(learner_factory make, std::shared_ptr<loss_scaler> scale) {
  return scale ? layered<scaled_learner>(std::move(make), "", scale) : make;
}

} // namespace waggle
