#pragma once

#include "runtime/training/strategies/anchored_learner.hpp"

namespace waggle {

/// On top of a learner that can resume.
template <class Anchored>
class resumable_anchored : public Anchored, public resumable_learner {
public:
  using Anchored::Anchored;

  [[nodiscard]] std::string position() const override { return this->resumed().position(); }
  [[nodiscard]] std::string taken_position() const override { return this->position_when_taken(); }
  status load_position(std::string_view position) override {
    return this->resumed().load_position(position);
  }
  [[nodiscard]] partial_gradient copy_gradient() const override { return this->copy_progress(); }
  status load_gradient(const partial_gradient& partial) override {
    return this->load_progress(partial);
  }
};

/// Makes learners of this kind from those of `make`, which step locally. Fails with ec::bad_config
/// if they cannot.
template <class Anchored, class... Arguments>
learner_factory anchored(learner_factory make, std::string_view strategy, Arguments... arguments) {
  return [=]() -> result<std::unique_ptr<learner>> {
    auto inner = make();
    if (!inner)
      return inner.error();
    auto* local = dynamic_cast<local_learner*>(inner->get());
    if (local == nullptr)
      return failure{ec::bad_config, "this model cannot step locally, as --strategy "
                                       + std::string{strategy} + " does"};
    inner->release();
    std::unique_ptr<local_learner> steps{local};
    if (resumable_of(*local) != nullptr)
      return std::unique_ptr<learner>{
        std::make_unique<resumable_anchored<Anchored>>(std::move(steps), arguments...)};
    return std::unique_ptr<learner>{std::make_unique<Anchored>(std::move(steps), arguments...)};
  };
}

/// Makes anchored_learners.
learner_factory with_anchor(learner_factory make, const outer_rule& rule);

} // namespace waggle
