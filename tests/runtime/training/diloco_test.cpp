#include <cmath>
#include <limits>

#include <gtest/gtest.h>

#include "runtime/core/random.hpp"
#include "runtime/training/averaged_tensors.hpp"
#include "runtime/training/learner_layer.hpp"
#include "runtime/training/strategies/anchored_learner.hpp"
#include "runtime/training/strategy.hpp"
#include "tests/support/states.hpp"
#include "tests/support/toy_learner.hpp"

namespace waggle {
namespace {

using testing::make_toy_learner, testing::toy_options;

constexpr double rate = 0.05; // of the inner optimizer

std::unique_ptr<learner> anchored(const outer_rule& rule, const toy_options& toy = {}) {
  auto made = waggle::anchored(
    [toy]() -> result<std::unique_ptr<learner>> { return {make_toy_learner(toy)}; }, "diloco",
    rule)();
  EXPECT_TRUE(made.ok());
  return std::move(made).value();
}

void pass(learner& model) {
  ASSERT_TRUE(model.accumulate().finite);
  model.step_locally(rate);
}

std::vector<float> tensor(const learner& model, std::string_view name) {
  for (std::size_t i = 0; i < model.tensors().size(); ++i)
    if (model.tensors()[i].name == name) {
      std::vector<float> values(model.tensors()[i].elements());
      model.read_tensor(i, values);
      return values;
    }
  ADD_FAILURE() << name;
  return {};
}

/// θ, which the state does not show.
std::vector<float> own(learner& model) {
  return tensor(dynamic_cast<learner_layer&>(model).below(), "weights");
}

std::vector<float> plain(int passes, const toy_options& toy = {}) {
  auto model = make_toy_learner(toy);
  for (int i = 0; i < passes; ++i)
    pass(*model);
  return tensor(*model, "weights");
}

/// Takes the progress, which is of so many samples.
std::shared_ptr<const float_vector> take(learner& model, vector_pool& vectors,
                                         std::uint64_t samples) {
  auto taken = model.take_mean_vector(vectors);
  EXPECT_EQ(taken.samples, samples);
  return taken.values;
}

struct AnchoredLearner : ::testing::Test {
  std::shared_ptr<vector_pool> vectors = vector_pool::make(4);
};

TEST_F(AnchoredLearner, TheOuterStepIsThatOfNesterov) {
  auto model = anchored({});
  auto start = tensor(*model, "weights");
  const double expected[] = {-1.33, -3.227, -5.6343}; // Nesterov, Δ = 1 three times
  for (double x : expected) {
    model->apply(std::vector<float>(start.size(), 1.0F), 0);
    auto now = tensor(*model, "weights");
    for (std::size_t i = 0; i < now.size(); ++i)
      EXPECT_NEAR(now[i] - start[i], x, 1e-4);
  }
  EXPECT_NEAR(tensor(*model, "outer/momentum/weights").front(), 2.71, 1e-5);
  EXPECT_EQ(own(*model), tensor(*model, "weights")) << "it has made no step of its own";
}

TEST_F(AnchoredLearner, AnOuterStepOfManyValuesHasTheBitsOfOneAfterAnother) {
  constexpr std::size_t count = 1003;
  for (outer_rule rule : {outer_rule{}, outer_rule{0.7, 0.9, false}, outer_rule{0.7, 0, true}}) {
    auto model = anchored(rule, {.parameters = count});
    auto anchor = tensor(*model, "weights");
    std::vector<float> momentum(count), mean(count);
    random_source random{5};
    for (int step = 0; step < 3; ++step) {
      for (auto& x : mean)
        x = static_cast<float>(random.unit() - 0.5);
      model->apply(mean, 0);
      auto share = static_cast<float>(rule.momentum);
      for (std::size_t i = 0; i < count; ++i) {
        momentum[i] = share * momentum[i] + mean[i];
        auto by = rule.momentum == 0 ? mean[i]
                  : rule.nesterov    ? mean[i] + share * momentum[i]
                                     : momentum[i];
        anchor[i] -= static_cast<float>(rule.rate) * by;
      }
      EXPECT_EQ(tensor(*model, "weights"), anchor);
    }
  }
}

TEST_F(AnchoredLearner, WithoutNesterovTheMomentumIsTheStep) {
  auto model = anchored({1, 0.5, false});
  auto start = tensor(*model, "weights");
  for (double x : {-1.0, -2.5}) {
    model->apply(std::vector<float>(start.size(), 1.0F), 0);
    EXPECT_NEAR(tensor(*model, "weights").front() - start.front(), x, 1e-5);
  }
}

TEST_F(AnchoredLearner, TheGradientIsTheProgressOfSeveralSteps) {
  auto model = anchored({});
  auto anchor = tensor(*model, "weights");
  for (int i = 0; i < 3; ++i)
    pass(*model);
  EXPECT_EQ(own(*model), plain(3)) << "the inner steps are those of the plain loop";
  EXPECT_EQ(tensor(*model, "weights"), anchor) << "the run's model has not moved";
  EXPECT_EQ(model->accumulated_samples(), 12U);
  auto progress = take(*model, *vectors, 12);
  for (std::size_t i = 0; i < anchor.size(); ++i)
    EXPECT_EQ((*progress)[i], anchor[i] - own(*model)[i]);
  EXPECT_EQ(model->accumulated_samples(), 0U);
}

TEST_F(AnchoredLearner, OnePeerAtRateOneAndWithoutMomentumIsThePlainLoopBitForBit) {
  auto model = anchored({1, 0, true});
  EXPECT_EQ(model->tensors().shared_count(), model->tensors().parameter_count());
  for (int round = 0; round < 20; ++round) {
    for (int i = 0; i < 5; ++i)
      pass(*model);
    auto progress = take(*model, *vectors, 20);
    model->apply(std::span<const float>{*progress}.first(model->parameter_count()), 0);
  }
  EXPECT_EQ(tensor(*model, "weights"), plain(100));
  EXPECT_EQ(own(*model), plain(100));
}

TEST_F(AnchoredLearner, KeepsTheShareAlphaOfItsOwnParameters) {
  for (double alpha : {0.25, 0.5}) {
    auto model = anchored({.rate = 1, .momentum = 0, .alpha = alpha});
    for (int i = 0; i < 3; ++i)
      pass(*model);
    take(*model, *vectors, 12);
    pass(*model);
    auto later = own(*model);
    model->apply(std::vector<float>(later.size(), 0.25F), 0);
    auto anchor = tensor(*model, "weights");
    for (std::size_t i = 0; i < later.size(); ++i)
      EXPECT_NEAR(own(*model)[i], alpha * later[i] + (1 - alpha) * anchor[i], 1e-6) << alpha;
    EXPECT_EQ(model->accumulated_samples(), 4U);
  }
}

TEST_F(AnchoredLearner, WhatWasLearnedSinceTheCopyStays) {
  auto model = anchored({});
  for (int i = 0; i < 3; ++i)
    pass(*model);
  auto progress = take(*model, *vectors, 12);
  auto copy = own(*model);
  pass(*model); // while the round runs
  auto before = own(*model);
  model->apply(std::vector<float>(progress->size(), 0.5F), 0);
  auto anchor = tensor(*model, "weights");
  for (std::size_t i = 0; i < copy.size(); ++i)
    EXPECT_NEAR(own(*model)[i] - anchor[i], before[i] - copy[i], 1e-6);
  EXPECT_EQ(model->accumulated_samples(), 4U) << "of the pass that was not in the mean";
}

TEST_F(AnchoredLearner, ProgressThatIsInNoUpdateCountsTowardTheNext) {
  auto model = anchored({});
  pass(*model);
  (void)take(*model, *vectors, 4);
  pass(*model);
  EXPECT_EQ(model->take_back(), 4U);
  EXPECT_EQ(model->take_back(), 0U) << "once";
  auto anchor = tensor(*model, "weights");
  auto progress = take(*model, *vectors, 8);
  for (std::size_t i = 0; i < anchor.size(); ++i)
    EXPECT_EQ((*progress)[i], anchor[i] - plain(2)[i]);
}

TEST_F(AnchoredLearner, AnUpdateOfOthersMovesThePeersOwnParameters) {
  auto model = anchored({1, 0, true});
  pass(*model);
  auto anchor = tensor(*model, "weights");
  auto theta = own(*model);
  model->apply(std::vector<float>(anchor.size(), 0.25F), 0); // without our progress
  for (std::size_t i = 0; i < theta.size(); ++i) {
    EXPECT_NEAR(own(*model)[i], theta[i] - 0.25F, 1e-6);
    EXPECT_EQ(tensor(*model, "weights")[i], anchor[i] - 0.25F);
  }
  EXPECT_EQ(model->accumulated_samples(), 4U);
}

TEST_F(AnchoredLearner, DroppedProgressMakesTheParametersTheAnchor) {
  auto model = anchored({});
  pass(*model);
  EXPECT_EQ(model->drop_gradient(), 4U);
  EXPECT_EQ(take(*model, *vectors, 0)->front(), 0.0F);
  auto anchor = tensor(*model, "weights");
  ASSERT_TRUE(model->accumulate().finite); // the next pass begins from the anchor
  EXPECT_EQ(own(*model), anchor);
}

TEST_F(AnchoredLearner, ParametersThatAreNotFiniteAreReplacedByTheAnchor) {
  auto model = anchored({});
  auto& inner = dynamic_cast<learner_layer&>(*model).below();
  pass(*model);
  inner.write_tensor(0, std::vector<float>(8, std::numeric_limits<float>::infinity()));
  (void)take(*model, *vectors, 4);
  EXPECT_EQ(model->take_back(), 4U);
  EXPECT_EQ(model->drop_gradient(), 4U);
  pass(*model);
  for (float x : own(*model))
    EXPECT_TRUE(std::isfinite(x));
}

TEST_F(AnchoredLearner, StatisticsThatAreNotFiniteBeginAnewWithTheParameters) {
  auto model = anchored({});
  auto& inner = dynamic_cast<learner_layer&>(*model).below();
  pass(*model);
  inner.write_tensor(1, std::vector<float>(8, std::numeric_limits<float>::infinity()));
  pass(*model);
  EXPECT_EQ(model->drop_gradient(), 8U);
  pass(*model);
  for (float x : own(*model))
    EXPECT_TRUE(std::isfinite(x));
}

TEST_F(AnchoredLearner, ProgressThatIsTakenBackAfterADropIsNotUndone) {
  auto model = anchored({});
  pass(*model);
  (void)take(*model, *vectors, 4);
  auto copy = own(*model);
  pass(*model); // while the round runs
  EXPECT_EQ(model->drop_gradient(), 4U);
  EXPECT_EQ(model->take_back(), 4U);
  ASSERT_TRUE(model->accumulate().finite);
  EXPECT_EQ(own(*model), copy);
  EXPECT_EQ(model->accumulated_samples(), 4U);
}

TEST_F(AnchoredLearner, AStateThatIsLoadedMovesWhatWasTakenBackAfterADrop) {
  auto ahead = anchored({});
  ahead->apply(std::vector<float>(ahead->parameter_count(), 0.5F), 0);
  auto model = anchored({});
  auto anchor = tensor(*model, "weights");
  pass(*model);
  (void)take(*model, *vectors, 4);
  auto copy = own(*model);
  pass(*model);
  (void)model->drop_gradient();
  (void)model->take_back();
  ASSERT_TRUE(testing::load_state(*model, testing::save_state(*ahead)).ok());
  for (std::size_t i = 0; i < anchor.size(); ++i)
    EXPECT_NEAR(own(*model)[i] - tensor(*model, "weights")[i], copy[i] - anchor[i], 1e-6);
  EXPECT_EQ(model->accumulated_samples(), 4U);
}

TEST_F(AnchoredLearner, ARoundThatWasUnderWayAtAStopCanBeTakenBackAfterIt) {
  auto first = anchored({});
  pass(*first);
  (void)take(*first, *vectors, 4);
  pass(*first);
  auto second = anchored({});
  ASSERT_TRUE(testing::load_state(*second, testing::save_state(*first)).ok());
  ASSERT_TRUE(second->load_gradient(first->copy_gradient()).ok());
  EXPECT_EQ(second->accumulated_samples(), 4U);
  EXPECT_EQ(second->take_back(), 4U);
  EXPECT_EQ(second->accumulated_samples(), 8U);
  EXPECT_EQ(own(*second), own(*first));
}

TEST_F(AnchoredLearner, AJoinerMakesTheSameOuterStepAsItsDonor) {
  auto donor = anchored({}, {.data_seed = 1});
  for (int round = 0; round < 3; ++round) {
    pass(*donor);
    auto progress = take(*donor, *vectors, 4);
    donor->apply(std::span<const float>{*progress}.first(donor->parameter_count()), 0);
  }
  pass(*donor); // in the middle of a round
  auto state = testing::save_state(*donor);
  auto joiner = anchored({}, {.init_seed = 99, .data_seed = 2});
  ASSERT_TRUE(testing::load_state(*joiner, state).ok());
  EXPECT_EQ(joiner->parameters_digest(), donor->parameters_digest());
  EXPECT_EQ(own(*joiner), tensor(*donor, "weights")) << "it begins at the anchor";
  EXPECT_EQ(tensor(*joiner, "momentum_buffer/weights"), tensor(*donor, "momentum_buffer/weights"));
  std::vector<float> mean(joiner->parameter_count(), 0.125F);
  donor->apply(mean, 0);
  joiner->apply(mean, 0);
  EXPECT_EQ(joiner->parameters_digest(), donor->parameters_digest());
}

TEST_F(AnchoredLearner, AStateThatIsLoadedMovesProgressWithIt) {
  auto ahead = anchored({});
  ahead->apply(std::vector<float>(ahead->parameter_count(), 0.5F), 0);
  auto model = anchored({});
  pass(*model);
  auto anchor = tensor(*model, "weights");
  auto progress = own(*model);
  ASSERT_TRUE(testing::load_state(*model, testing::save_state(*ahead)).ok());
  for (std::size_t i = 0; i < anchor.size(); ++i)
    EXPECT_NEAR(own(*model)[i] - tensor(*model, "weights")[i], progress[i] - anchor[i], 1e-6);
  EXPECT_EQ(model->accumulated_samples(), 4U);
}

TEST_F(AnchoredLearner, DigestsCoverTheAnchorAndItsMomentumOnly) {
  auto model = anchored({});
  auto before = model->parameters_digest();
  pass(*model);
  EXPECT_EQ(model->parameters_digest(), before) << "a step of its own";
  auto other = anchored({});
  other->write_tensor(1, std::vector<float>(8, 1.0F)); // the momentum
  EXPECT_NE(other->parameters_digest(), before);
}

/// A model of three tensors in two fragments: the first and the third, and the second.
struct FragmentedLearner : AnchoredLearner {
  static constexpr std::size_t lengths[] = {6, 3};
  const toy_options three{.parameters = 9, .tensors = 3};

  static outer_rule rule(double rate = 1, double momentum = 0) {
    return {.rate = rate, .momentum = momentum, .fragments = 2};
  }
  /// The values of a fragment in those of all parameters.
  static std::vector<float> part(const std::vector<float>& all, std::uint64_t epoch) {
    std::vector<float> first(all.begin(), all.begin() + 3);
    if (epoch % 2 == 1)
      return {all.begin() + 3, all.begin() + 6};
    first.insert(first.end(), all.begin() + 6, all.end());
    return first;
  }
  static std::vector<float> all_of(const learner& model) {
    std::vector<float> out;
    for (auto i : model.tensors().indices_of({state_tensor::kind::parameter}))
      for (float x : tensor(model, model.tensors()[i].name))
        out.push_back(x);
    return out;
  }
  static std::vector<float> theta(learner& model) {
    return all_of(dynamic_cast<learner_layer&>(model).below());
  }
  std::shared_ptr<const float_vector> take_for(learner& model, std::uint64_t epoch,
                                               std::uint64_t samples) {
    model.at_round(epoch_id{epoch});
    return take(model, *vectors, samples);
  }
  static void apply_for(learner& model, std::uint64_t epoch, std::span<const float> mean) {
    model.at_update(epoch_id{epoch});
    model.apply(mean, 0);
  }
};

TEST_F(FragmentedLearner, EachEpochTakesWhatAFragmentHasLearnedSinceItsTurn) {
  auto model = anchored(rule(), three);
  auto start = all_of(*model);
  auto alone = make_toy_learner(three);
  for (std::uint64_t epoch = 0; epoch < 6; ++epoch) {
    pass(*model);
    pass(*alone);
    auto before = part(all_of(*model), epoch);
    auto progress = take_for(*model, epoch, 4);
    ASSERT_EQ(progress->size(), lengths[epoch % 2]);
    auto learned = part(all_of(*alone), epoch);
    for (std::size_t i = 0; i < learned.size(); ++i)
      EXPECT_EQ((*progress)[i], before[i] - learned[i]) << epoch;
    auto others = part(all_of(*model), epoch + 1);
    apply_for(*model, epoch, *progress);
    EXPECT_EQ(part(all_of(*model), epoch), learned);
    EXPECT_EQ(part(all_of(*model), epoch + 1), others) << "it is not their turn";
    EXPECT_EQ(theta(*model), all_of(*alone)) << "a peer alone is the plain loop";
  }
}

TEST_F(FragmentedLearner, AMeanOfOthersMovesItsFragmentAndKeepsWhatIsNew) {
  auto model = anchored(rule(0.5, 0.5), three);
  for (std::uint64_t epoch = 0; epoch < 4; ++epoch) {
    pass(*model);
    (void)take_for(*model, epoch, 4);
    pass(*model); // while the round runs
    auto anchor = all_of(*model);
    auto mine = theta(*model);
    std::vector<float> copy(9);
    {
      auto progress = model->copy_gradient(); // the copy stands behind the parameters
      ASSERT_EQ(progress.sum->size(), 9 + lengths[epoch % 2] + 1);
      std::copy_n(progress.sum->begin() + 9, lengths[epoch % 2], copy.begin());
    }
    apply_for(*model, epoch, std::vector<float>(lengths[epoch % 2], 1.0F));
    auto moved = part(all_of(*model), epoch);
    auto now = part(theta(*model), epoch);
    for (std::size_t i = 0; i < moved.size(); ++i)
      EXPECT_NEAR(now[i] - part(mine, epoch)[i], moved[i] - copy[i], 1e-6);
    EXPECT_EQ(part(theta(*model), epoch + 1), part(mine, epoch + 1));
    EXPECT_EQ(part(all_of(*model), epoch + 1), part(anchor, epoch + 1));
    EXPECT_EQ(model->drop_gradient(), 4U);
    ASSERT_TRUE(model->accumulate().finite);
    model->step_locally(0);
    EXPECT_EQ(theta(*model), all_of(*model)) << "dropped progress makes all of them the anchor";
    (void)model->drop_gradient();
  }
}

TEST_F(FragmentedLearner, AStateThatIsLoadedMovesTheProgressOfAllFragments) {
  auto ahead = anchored(rule(), three);
  apply_for(*ahead, 0, std::vector<float>(lengths[0], 0.5F));
  apply_for(*ahead, 1, std::vector<float>(lengths[1], 0.25F));
  auto newcomer = anchored(rule(), {.parameters = 9, .init_seed = 99, .tensors = 3});
  ASSERT_TRUE(testing::load_state(*newcomer, testing::save_state(*ahead)).ok());
  EXPECT_EQ(theta(*newcomer), all_of(*ahead)) << "it begins at the anchor";
  auto model = anchored(rule(), three);
  pass(*model);
  auto progress = take_for(*model, 0, 4); // the samples are in this round
  apply_for(*model, 0, *progress);
  auto anchor = all_of(*model);
  auto mine = theta(*model);
  ASSERT_TRUE(testing::load_state(*model, testing::save_state(*ahead)).ok());
  for (std::size_t i = 0; i < 9; ++i)
    EXPECT_NEAR(theta(*model)[i] - all_of(*model)[i], mine[i] - anchor[i], 1e-6);
}

TEST_F(FragmentedLearner, ParametersThatAreNotFiniteAreReplacedWhoseverTurnItIs) {
  /// Says what it finds, as those of LibTorch do.
  struct looks : learner_layer {
    using learner_layer::learner_layer;
    micro_step accumulate() override {
      auto step = learner_layer::accumulate();
      step.finite = std::isfinite(step.loss);
      if (!step.finite)
        (void)below().drop_gradient();
      return step;
    }
  };
  auto made = waggle::anchored(
    [this]() -> result<std::unique_ptr<learner>> {
      return std::unique_ptr<learner>{std::make_unique<looks>(make_toy_learner(three))};
    },
    "diloco", rule())();
  ASSERT_TRUE(made.ok());
  auto& model = *made;
  pass(*model);
  auto& below = dynamic_cast<learner_layer&>(*model).below();
  below.write_tensor(1, std::vector<float>(3, std::numeric_limits<float>::infinity()));
  (void)take_for(*model, 0, 4); // of the other fragment, which is finite
  EXPECT_FALSE(model->accumulate().finite);
  pass(*model);
  for (float x : theta(*model))
    EXPECT_TRUE(std::isfinite(x));
}

TEST_F(FragmentedLearner, ADropRightAfterARoundMakesAllFragmentsTheAnchor) {
  auto model = anchored(rule(), three);
  pass(*model);
  apply_for(*model, 0, *take_for(*model, 0, 4));
  EXPECT_NE(theta(*model), all_of(*model));
  EXPECT_EQ(model->drop_gradient(), 0U);
  ASSERT_TRUE(model->accumulate().finite);
  EXPECT_EQ(theta(*model), all_of(*model));
}

TEST_F(FragmentedLearner, AnUpdateOfAnotherFragmentLeavesTheCopyToItsOwn) {
  auto model = anchored(rule(), three);
  pass(*model);
  auto progress = take_for(*model, 1, 4);
  apply_for(*model, 0, std::vector<float>(lengths[0], 0.5F)); // missed before
  EXPECT_EQ(model->accumulated_samples(), 0U);
  apply_for(*model, 1, *progress);
  EXPECT_EQ(part(theta(*model), 1), part(all_of(*model), 1)) << "it counts once";
  EXPECT_EQ(model->take_back(), 0U);
}

TEST_F(FragmentedLearner, AStateIsOfNoUseWithOtherFragments) {
  auto in_two = anchored(rule(), three);
  auto other = rule();
  other.fragments = 3;
  auto in_three = anchored(other, three);
  EXPECT_NE(in_two->schema(), in_three->schema());
  EXPECT_FALSE(testing::load_state(*in_three, testing::save_state(*in_two)).ok());
}

TEST_F(FragmentedLearner, ARestartKeepsTheCopyOfEachFragment) {
  for (std::uint64_t epoch : {0U, 1U}) {
    auto first = anchored(rule(0.7, 0.9), three);
    pass(*first);
    (void)take_for(*first, epoch, 4);
    pass(*first);
    auto second = anchored(rule(0.7, 0.9), three);
    ASSERT_TRUE(testing::load_state(*second, testing::save_state(*first)).ok());
    ASSERT_TRUE(second->load_gradient(first->copy_gradient()).ok());
    for (auto* one : {first.get(), second.get()})
      apply_for(*one, epoch, std::vector<float>(lengths[epoch], 1.0F));
    EXPECT_EQ(theta(*second), theta(*first));
    EXPECT_EQ(testing::save_state(*second), testing::save_state(*first));
  }
}

TEST_F(FragmentedLearner, FollowsTheTrajectoriesThatTorchftRecorded) {
  struct recorded {
    int overlap;
    double alpha;
    std::vector<double> first; // after each step, the parameter of the first fragment
    std::vector<double> second;
  };
  // Two fragments, one each 3 steps; each step subtracts 2, and the outer rate is 2.
  const recorded all[] = {
    {0,
     0.0,
     {-1, -3, -11, -13, -15, -17, -19, -21, -35, -37, -39, -41, -43, -45, -59},
     {-1, -3, -5, -7, -9, -23, -25, -27, -29, -31, -33, -47, -49, -51, -53}},
    {0,
     0.5,
     {-1, -3, -8, -10, -12, -14, -16, -18, -24.5, -26.5, -28.5, -30.5, -32.5, -34.5, -40.25},
     {-1, -3, -5, -7, -9, -17, -19, -21, -23, -25, -27, -32, -34, -36, -38}},
    {1,
     0.5,
     {-1, -3, -6, -8, -10, -12, -14, -16, -21.5, -23.5, -25.5, -27.5, -29.5, -31.5, -35.75},
     {-1, -3, -5, -7, -9, -15, -17, -19, -21, -23, -25, -29, -31, -33, -35}},
  };
  for (const auto& expected : all) {
    auto model = anchored({2, 0, false, false, expected.alpha, 2}, {.parameters = 2, .tensors = 2});
    auto& below = dynamic_cast<learner_layer&>(*model).below();
    std::vector<float> now{1, 1};
    for (std::size_t i : {0U, 1U})
      model->write_tensor(i, {&now[i], 1});
    model->set_optimizer_steps(0);
    std::shared_ptr<const float_vector> taken;
    for (std::uint64_t step = 1; step <= expected.first.size(); ++step) {
      ASSERT_TRUE(model->accumulate().finite);
      model->step_locally(0);
      now = theta(*model);
      for (std::size_t i : {0U, 1U}) {
        now[i] -= 2;
        below.write_tensor(i, {&now[i], 1});
      }
      if ((step + static_cast<std::uint64_t>(expected.overlap)) % 3 == 0) {
        model->at_round(epoch_id{(step - 1) / 3});
        taken = model->take_mean_vector(*vectors).values;
      }
      if (step % 3 == 0)
        apply_for(*model, step / 3 - 1, *taken);
      now = theta(*model);
      EXPECT_EQ(now[0], expected.first[step - 1]) << step;
      EXPECT_EQ(now[1], expected.second[step - 1]) << step;
    }
  }
}

/// The share alpha: what a peer keeps of its own parameters is not in the state.
struct StoppedAnchoredLearner : AnchoredLearner, ::testing::WithParamInterface<double> {};

TEST_P(StoppedAnchoredLearner, ContinuesBitForBitAfterAnyPass) {
  const outer_rule rule{.alpha = GetParam()};
  for (int stop = 0; stop <= 7; ++stop) {
    auto passes_of = [&](learner& model, int from, int to) {
      for (int i = from; i < to; ++i) {
        pass(model);
        if (i % 3 != 2)
          continue;
        auto progress = model.take_mean_vector(*vectors).values;
        model.apply(std::span<const float>{*progress}.first(model.parameter_count()), 0);
      }
    };
    auto whole = anchored(rule);
    passes_of(*whole, 0, 9);
    auto first = anchored(rule);
    passes_of(*first, 0, stop);
    auto second = anchored(rule);
    ASSERT_TRUE(testing::load_state(*second, testing::save_state(*first)).ok());
    auto& left = *first;
    auto& resumes = *second;
    ASSERT_TRUE(resumes.load_position(left.position()).ok());
    if (auto partial = left.copy_gradient(); partial.sum) {
      ASSERT_TRUE(resumes.load_gradient(partial).ok());
    }
    passes_of(*second, stop, 9);
    EXPECT_EQ(testing::save_state(*second), testing::save_state(*whole)) << "after " << stop;
    EXPECT_EQ(own(*second), own(*whole)) << "after " << stop;
  }
}

INSTANTIATE_TEST_SUITE_P(Shares, StoppedAnchoredLearner, ::testing::Values(0.0, 0.5));

TEST_F(AnchoredLearner, ALearnerThatCannotStepLocallyIsRefused) {
  auto made = waggle::anchored(
    []() -> result<std::unique_ptr<learner>> {
      return failure{ec::bad_config, "no model"};
    },
    "diloco", outer_rule{})();
  EXPECT_EQ(made.error().detail, "no model");
}

} // namespace
} // namespace waggle
