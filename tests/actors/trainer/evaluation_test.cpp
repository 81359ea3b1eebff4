#include <gtest/gtest.h>

#include "tests/actors/trainer/training_world.hpp"
#include "tests/support/states.hpp"

namespace waggle::testing {

namespace {

/// Says that the loss is the first weight, and remembers all weights.
class first_weight final : public evaluator {
public:
  explicit first_weight(std::shared_ptr<std::vector<float_vector>> seen) : seen_(std::move(seen)) {}
  result<evaluation> measure(std::span<const float> weights,
                             const std::atomic<bool>& /*stop*/) override {
    seen_->emplace_back(weights.begin(), weights.end());
    if (seen_->size() == 2)
      return failure{ec::io_error, "the second one fails"};
    if (seen_->size() == 3)
      throw std::runtime_error{"a module may throw anything"};
    return evaluation{static_cast<double>(weights.front()), 0.25, 8};
  }

private:
  std::shared_ptr<std::vector<float_vector>> seen_;
};

class Evaluation : public training_world {
protected:
  void evaluate_every(milliseconds time, std::uint64_t last = 0) {
    auto make = [seen = seen]() -> result<std::unique_ptr<evaluator>> {
      return std::unique_ptr<evaluator>{std::make_unique<first_weight>(seen)};
    };
    evaluation =
      evaluation_plan{.make = make, .every = time, .last = epoch_id{last}, .own_thread = false};
  }
  std::shared_ptr<std::vector<float_vector>> seen = std::make_shared<std::vector<float_vector>>();
};

TEST_F(Evaluation, IsOfTheWeightsAtTheEndOfAnEpochAndAFailureOfOneIsNotTheEnd) {
  evaluate_every(0ms);
  auto config = defaults();
  config.max_epochs = 5;
  auto& m = add_started(config);
  pass_until([&] { return status_of(m).phase == trainer_phase::finished; });
  ASSERT_EQ(seen->size(), 5U);
  for (std::size_t i = 1; i < seen->size(); ++i)
    EXPECT_NE(seen->at(i), seen->at(i - 1));
  auto status = status_of(m);
  EXPECT_EQ(status.eval_epoch, epoch_id{5});
  EXPECT_EQ(status.eval_loss, static_cast<double>(seen->back().front()));
  EXPECT_EQ(status.eval_accuracy, 0.25);
  auto snapshot = ask<state_snapshot>(m.actor, get_state_snapshot{});
  std::vector<std::byte> image(snapshot->state->size());
  ASSERT_TRUE(snapshot->state->read(0, image));
  auto state = decode_state(image);
  auto table = read_state_table(state->learner);
  auto values = testing::parameters_in(*table, state->learner);
  EXPECT_EQ(std::memcmp(values.data(), seen->back().data(), values.size()), 0);
}

TEST_F(Evaluation, IsMadeOnceInItsTimeAndAfterTheLastEpoch) {
  evaluate_every(1h, 20);
  auto config = defaults();
  config.max_epochs = 20;
  auto& m = add_started(config);
  pass_until([&] { return status_of(m).phase == trainer_phase::finished; });
  EXPECT_EQ(seen->size(), 2U); // of the first epoch, and of the last one, which fails
  EXPECT_EQ(status_of(m).eval_epoch, epoch_id{1});
}

TEST_F(Evaluation, StatusSaysHowLongTheRunWillTake) {
  auto config = defaults();
  config.max_epochs = 400;
  auto& m = add_started(config);
  EXPECT_TRUE(std::isnan(status_of(m).seconds_left));
  pass_until([&] { return status_of(m).epoch >= epoch_id{200}; });
  auto began = status_of(m).seconds_left;
  EXPECT_GT(began, 5); // eight passes of 10 ms an epoch
  EXPECT_LT(began, 60);
  pass_until([&] { return status_of(m).epoch >= epoch_id{300}; });
  EXPECT_NEAR(status_of(m).seconds_left, began / 2, began / 8);
}

} // namespace

} // namespace waggle::testing
