#include "runtime/training/scaled_loss.hpp"

#include "runtime/training/forwarding_learner.hpp"
#include "runtime/training/local_learner.hpp"

namespace waggle {

namespace {

template <class Learner>
class scaled_learner : public forwarding_learner<Learner> {
public:
  scaled_learner(std::unique_ptr<Learner> inner, std::shared_ptr<shared_loss_scale> scale)
    : forwarding_learner<Learner>(std::move(inner)), scale_(std::move(scale)) {}

  void apply(std::span<const float> gradient, double lr) override {
    forwarding_learner<Learner>::apply(gradient, lr);
    scale_->on_update();
  }
  [[nodiscard]] std::string own_state() const override { return scale_->save(); }
  status load_own_state(std::string_view own) override { return scale_->load(own); }

protected:
  const std::shared_ptr<shared_loss_scale> scale_;
};

class scaled_local_learner final : public forwarding_local_learner<scaled_learner<local_learner>> {
public:
  using forwarding_local_learner::forwarding_local_learner;

  void step_locally(double lr) override {
    bool steps = accumulated_samples() > 0;
    inner().step_locally(lr);
    if (steps)
      scale_->on_update();
  }
};

} // namespace

learner_factory with_loss_scale(learner_factory make, std::shared_ptr<shared_loss_scale> scale) {
  if (!scale)
    return make;
  return [make = std::move(make), scale]() -> result<std::unique_ptr<learner>> {
    auto made = make();
    if (!made)
      return made.error();
    auto* local = dynamic_cast<local_learner*>(made->get());
    if (local == nullptr)
      return std::unique_ptr<learner>{
        std::make_unique<scaled_learner<learner>>(std::move(*made), scale)};
    made->release();
    return std::unique_ptr<learner>{
      std::make_unique<scaled_local_learner>(std::unique_ptr<local_learner>{local}, scale)};
  };
}

} // namespace waggle
