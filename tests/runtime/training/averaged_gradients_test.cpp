#include <atomic>
#include <cmath>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/training/averaged_tensors.hpp"
#include "runtime/training/layers.hpp"
#include "runtime/training/learner_layer.hpp"
#include "tests/support/states.hpp"
#include "tests/support/toy_learner.hpp"

namespace waggle {
namespace {

using ::testing::Each, ::testing::ElementsAre, ::testing::FloatEq, ::testing::HasSubstr,
  ::testing::Pointwise;
using vector = std::vector<float>;

/// Each pass gives the next of `gradients`. Keeps the gradients with which it steps.
struct script {
  std::vector<vector> gradients;
  std::size_t next = 0;
  std::vector<vector> stepped;
};

class scripted_learner final : public learner {
public:
  explicit scripted_learner(std::shared_ptr<script> by)
    : by_(std::move(by)), weights_(by_->gradients.front().size()),
      tensors_({{"w", {weights_.size()}, state_tensor::kind::parameter}}) {}

  micro_step accumulate() override {
    sum_ = by_->gradients.at(by_->next++);
    return {0, 1, true};
  }
  void apply(std::span<const float> gradient, double lr) override {
    by_->stepped.emplace_back(gradient.begin(), gradient.end());
    std::lock_guard lock{values_};
    for (std::size_t i = 0; i < weights_.size(); ++i)
      weights_[i] -= static_cast<float>(lr) * gradient[i];
  }
  [[nodiscard]] learner_abilities abilities() const override {
    return {.steps_locally = true, .copies_during_passes = true};
  }
  void step_locally(double) override { FAIL() << "the wrapper steps"; }
  mean_gradient take_mean_vector(vector_pool& vectors, std::size_t room) override {
    auto out = vectors.take(gradient_count() + room);
    std::fill(out->begin(), out->end(), 0.0F);
    std::copy(sum_.begin(), sum_.end(), out->begin());
    return {std::move(out), drop_gradient()};
  }
  std::uint64_t drop_gradient() override {
    auto samples = accumulated_samples();
    sum_.clear();
    return samples;
  }
  [[nodiscard]] std::uint64_t accumulated_samples() const override { return sum_.empty() ? 0 : 1; }
  void read_tensor(std::size_t, std::span<float> out) const override {
    std::copy(weights_.begin(), weights_.end(), out.begin());
  }
  void write_tensor(std::size_t, std::span<const float> values) override {
    weights_.assign(values.begin(), values.end());
  }
  [[nodiscard]] std::uint64_t optimizer_steps() const override { return by_->stepped.size(); }
  void set_optimizer_steps(std::uint64_t) override {}
  [[nodiscard]] const state_table& tensors() const override { return tensors_; }
  [[nodiscard]] digest schema() const override { return {}; }

private:
  std::shared_ptr<script> by_;
  vector weights_;
  vector sum_;
  state_table tensors_;
};

lane averaging() {
  return find_strategy("local-updates")->make({.average_gradients = true}).averages;
}

/// A peer whose gradient is averaged.
struct peer {
  explicit peer(std::vector<vector> gradients, double norm_max = 0) {
    by->gradients = std::move(gradients);
    auto make = [this]() -> result<std::unique_ptr<learner>> {
      return std::unique_ptr<learner>{std::make_unique<scripted_learner>(by)};
    };
    model = std::move(*with_averaged_gradients(clipped(make, norm_max), true)());
    averaged = *averaged_tensors::of(model->tensors(), averaging());
  }
  [[nodiscard]] learner& local() const { return *model; }
  void step() const {
    model->accumulate();
    local().step_locally(0.1);
  }
  [[nodiscard]] float_vector snapshot() const {
    float_vector values(averaged->value_count());
    local().copy_tensors(averaged->indices(), values);
    return values;
  }
  void merge(const float_vector& mean, const float_vector& from) const {
    local().add_change(averaged->indices(), mean, from);
  }
  /// The part of a vector that is the gradient.
  [[nodiscard]] vector gradient_in(const float_vector& values) const {
    return {values.begin() + static_cast<std::ptrdiff_t>(averaged->model_value_count()),
            values.end()};
  }
  [[nodiscard]] vector gradient() const { return gradient_in(snapshot()); }
  /// A mean whose parameters are those of `from`.
  [[nodiscard]] float_vector mean_with(const vector& gradient, float_vector from) const {
    std::copy(gradient.begin(), gradient.end(),
              from.begin() + static_cast<std::ptrdiff_t>(averaged->model_value_count()));
    return from;
  }

  std::shared_ptr<script> by = std::make_shared<script>();
  std::unique_ptr<learner> model;
  std::shared_ptr<const averaged_tensors> averaged;
};

float_vector mean_of(const std::vector<float_vector>& all) {
  float_vector mean(all.front().size());
  for (std::size_t i = 0; i < mean.size(); ++i) {
    double sum = 0;
    for (const auto& one : all)
      sum += static_cast<double>(one[i]);
    mean[i] = static_cast<float>(sum / static_cast<double>(all.size()));
  }
  return mean;
}

TEST(AveragedGradients, TheChangeIsAddedToTheGradientOfTheNextStepAndToNoOther) {
  peer a{{{1, 8}, {2, 2}, {4, 4}}};
  a.step();
  auto snapshot = a.snapshot();
  EXPECT_THAT(a.gradient_in(snapshot), ElementsAre(1, 8));
  a.merge(a.mean_with({5, 4}, snapshot), snapshot);
  a.step();
  a.step();
  EXPECT_THAT(a.by->stepped, ElementsAre(vector{1, 8}, vector{2 + 4, 2 - 4}, vector{4, 4}));
}

TEST(AveragedGradients, APeerContributesWhatThePassGaveWithoutAnEarlierCorrection) {
  peer a{{{1}, {2}}};
  a.step();
  auto snapshot = a.snapshot();
  a.merge(a.mean_with({9}, snapshot), snapshot);
  a.step();
  EXPECT_THAT(a.gradient(), ElementsAre(2));
}

TEST(AveragedGradients, AStepDuringTheRoundKeepsItsOwnGradient) {
  peer a{{{1}, {2}, {3}}};
  a.step();
  auto snapshot = a.snapshot();
  a.step();
  a.merge(a.mean_with({5}, snapshot), snapshot);
  EXPECT_THAT(a.gradient(), ElementsAre(2)) << "the next round averages the last gradient";
  a.step();
  EXPECT_THAT(a.by->stepped.back(), ElementsAre(3 + 5 - 1));
}

// A slow peer: the others begin a second round before it has made another step.
TEST(AveragedGradients, ASecondRoundBeforeTheNextStepDoesNotRepeatTheCorrection) {
  peer a{{{1}, {10}}};
  a.step();
  auto snapshot = a.snapshot();
  a.merge(a.mean_with({3}, snapshot), snapshot);
  snapshot = a.snapshot();
  EXPECT_THAT(a.gradient_in(snapshot), ElementsAre(3));
  a.merge(a.mean_with({4}, snapshot), snapshot); // the other peer has moved on
  a.step();
  EXPECT_THAT(a.by->stepped.back(), ElementsAre(10 + (3 - 1) + (4 - 3)));
}

TEST(AveragedGradients, WithoutAPassThereIsNoStepAndTheCorrectionWaits) {
  peer a{{{1}, {2}}};
  a.step();
  auto snapshot = a.snapshot();
  a.merge(a.mean_with({4}, snapshot), snapshot);
  a.local().step_locally(0.1); // the pass was not finite, or its gradient was dropped
  EXPECT_EQ(a.by->stepped.size(), 1U);
  a.step();
  EXPECT_THAT(a.by->stepped.back(), ElementsAre(2 + 4 - 1));
}

// Peers of different speed, rounds that take time: what all of them step with is what all their
// passes gave.
TEST(AveragedGradients, TheCorrectionsOfAllPeersAddUpToZero) {
  constexpr std::size_t passes = 40;
  std::vector<std::unique_ptr<peer>> peers;
  double given = 0;
  for (std::size_t i = 0; i < 3; ++i) {
    std::vector<vector> gradients;
    for (std::size_t k = 0; k < passes; ++k)
      gradients.push_back({static_cast<float>((7 * k + 11 * i * i + 3 * i) % 17) - 8});
    peers.push_back(std::make_unique<peer>(std::move(gradients)));
  }
  for (std::size_t round = 0; round < 9; ++round) {
    std::vector<float_vector> snapshots;
    for (auto& p : peers)
      snapshots.push_back(p->snapshot());
    for (std::size_t i = 0; i < peers.size(); ++i)
      for (std::size_t step = 0; step < (i + round) % 3; ++step)
        peers[i]->step();
    auto mean = mean_of(snapshots);
    for (std::size_t i = 0; i < peers.size(); ++i)
      peers[i]->merge(mean, snapshots[i]);
    for (std::size_t step = 0; step < round % 2; ++step)
      peers[round % 3]->step();
  }
  double stepped = 0;
  std::size_t corrected = 0;
  for (auto& p : peers) {
    p->step(); // uses up the last correction
    for (std::size_t k = 0; k < p->by->stepped.size(); ++k) {
      given += static_cast<double>(p->by->gradients[k][0]);
      stepped += static_cast<double>(p->by->stepped[k][0]);
      corrected += p->by->gradients[k] != p->by->stepped[k] ? 1 : 0;
    }
  }
  EXPECT_GT(corrected, 12U);
  EXPECT_NEAR(stepped, given, 1e-4);
}

TEST(AveragedGradients, APeerAloneHasTheBytesOfAPlainLoop) {
  auto toy = []() -> result<std::unique_ptr<learner>> {
    return std::unique_ptr<learner>{testing::make_toy_learner({})};
  };
  auto plain = testing::make_toy_learner({});
  auto wrapped = std::move(*with_averaged_gradients(toy, true)());
  auto& local = *wrapped;
  auto averaged = *averaged_tensors::of(wrapped->tensors(), averaging());
  float_vector snapshot(averaged->value_count());
  for (int step = 0; step < 10; ++step) {
    plain->accumulate();
    plain->step_locally(0.1);
    local.accumulate();
    local.step_locally(0.1);
    local.copy_tensors(averaged->indices(), snapshot);
    local.add_change(averaged->indices(), snapshot, snapshot);
    for (std::size_t i = 0; i < plain->tensors().size(); ++i) {
      vector a(8);
      vector b(8);
      plain->read_tensor(i, a);
      local.read_tensor(i, b);
      ASSERT_EQ(a, b);
    }
  }
  EXPECT_EQ(local.optimizer_steps(), plain->optimizer_steps());
  // A correction of 0 would turn -0 into 0.
  peer a{{{-0.0F}, {-0.0F}}};
  a.step();
  a.merge(a.snapshot(), a.snapshot());
  a.step();
  EXPECT_TRUE(std::signbit(a.by->stepped.back().front()));
}

TEST(AveragedGradients, AStateThatIsLoadedHasNeitherGradientNorCorrection) {
  peer donor{{{1}, {2}}};
  peer joiner{{{10}, {20}}};
  for (auto* p : {&donor, &joiner}) {
    p->step();
    auto snapshot = p->snapshot();
    p->merge(p->mean_with({5}, snapshot), snapshot);
  }
  ASSERT_TRUE(testing::load_state(*joiner.model, testing::save_state(*donor.model)).ok());
  EXPECT_EQ(joiner.model->parameters_digest(), donor.model->parameters_digest());
  EXPECT_THAT(joiner.gradient(), ElementsAre(0));
  joiner.step();
  EXPECT_THAT(joiner.by->stepped.back(), ElementsAre(20)) << "nobody's correction";
}

TEST(AveragedGradients, TheSumWithTheCorrectionIsClipped) {
  peer a{{{3}, {3}}, 4};
  a.step();
  auto snapshot = a.snapshot();
  EXPECT_THAT(a.gradient_in(snapshot), ElementsAre(3));
  a.merge(a.mean_with({8}, snapshot), snapshot);
  a.step();
  EXPECT_THAT(a.by->stepped.back(), ElementsAre(FloatEq(4)));
  EXPECT_THAT(a.gradient(), ElementsAre(3)) << "what is averaged is not clipped";
}

// Weight and gradient of the same step: after step k, the weight is -k·(k+1)/2 and the gradient k.
TEST(AveragedGradients, ACopyFromAnotherThreadIsThatOfOneStep) {
  constexpr std::size_t steps = 1'000;
  std::vector<vector> gradients;
  for (std::size_t k = 1; k <= steps; ++k)
    gradients.emplace_back(1'000, static_cast<float>(k));
  peer a{std::move(gradients)};
  std::atomic<bool> over = false;
  std::size_t torn = 0;
  std::thread copier{[&] {
    while (!over) {
      auto values = a.snapshot();
      auto k = values.back();
      torn += values.front() != -k * (k + 1) / 2 ? 1 : 0;
    }
  }};
  for (std::size_t k = 0; k < steps; ++k) {
    a.model->accumulate();
    a.local().step_locally(1);
  }
  over = true;
  copier.join();
  EXPECT_EQ(torn, 0U);
}

TEST(AveragedGradients, APeerWithThemIsAnotherSchema) {
  auto toy = []() -> result<std::unique_ptr<learner>> {
    return std::unique_ptr<learner>{testing::make_toy_learner({.buffer = true})};
  };
  auto plain = std::move(*with_averaged_gradients(toy, false)());
  auto wrapped = std::move(*with_averaged_gradients(toy, true)());
  EXPECT_EQ(plain->schema(), testing::make_toy_learner({})->schema());
  EXPECT_NE(plain->schema(), wrapped->schema());
  EXPECT_EQ(plain->tensors().size(), 3U);
  ASSERT_EQ(wrapped->tensors().size(), 4U);
  EXPECT_EQ(wrapped->tensors()[3].name, "gradient/weights");
  EXPECT_EQ(wrapped->tensors()[3].shape, plain->tensors()[0].shape);
  EXPECT_EQ(testing::load_state(*plain, testing::save_state(*wrapped)).error().code,
            ec::schema_mismatch);
  // Buffers follow the gradient that a pass gives; they are no part of what is averaged behind.
  auto& local = *wrapped;
  local.accumulate();
  local.step_locally(0.1);
  vector gradient(8);
  local.read_tensor(3, gradient);
  EXPECT_THAT(gradient, ::testing::Not(Each(0.0F)));
  EXPECT_THAT(gradient, Pointwise(FloatEq(), std::vector<float>(local.values_of(3).begin(),
                                                                local.values_of(3).end())));
}

TEST(AveragedGradients, OfALearnerThatDoesNotStepLocallyAreRefused) {
  class waiting_learner final : public learner_layer {
  public:
    waiting_learner() : learner_layer(testing::make_toy_learner({})) {}
    [[nodiscard]] learner_abilities abilities() const override { return {}; }
  };
  auto other = []() -> result<std::unique_ptr<learner>> {
    return std::unique_ptr<learner>{std::make_unique<waiting_learner>()};
  };
  auto made = with_averaged_gradients(other, true)();
  EXPECT_THAT(made.error().detail, HasSubstr("leave out --average-gradients"));
}

} // namespace
} // namespace waggle
