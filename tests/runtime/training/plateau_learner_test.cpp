#include <cmath>
#include <deque>
#include <functional>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/training/averaged_tensors.hpp"
#include "runtime/training/layers.hpp"
#include "runtime/training/learner_layer.hpp"
#include "runtime/training/low_rank.hpp"
#include "runtime/training/trained_model.hpp"
#include "tests/support/states.hpp"
#include "tests/support/toy_learner.hpp"

namespace waggle {
namespace {

using ::testing::ElementsAre, ::testing::HasSubstr, testing::make_toy_learner, testing::toy_options;

/// What the learner under the plateau was told and shall report.
struct script {
  std::deque<micro_step> steps; // the next passes return these, beside their gradient
  std::vector<double> rates;    // of the updates
  std::size_t buffer_means = 0; // values of the last merge_buffers
  std::size_t contributed = 0;
  std::function<void()> summed = [] {}; // called when a pass is in the gradient
};

class scripted_learner final : public learner_layer {
public:
  scripted_learner(const toy_options& toy, std::shared_ptr<script> told)
    : learner_layer(make_toy_learner(toy)), told_(std::move(told)) {}

  micro_step accumulate() override {
    auto step = learner_layer::accumulate();
    told_->summed();
    if (!told_->steps.empty()) {
      step = told_->steps.front();
      told_->steps.pop_front();
    }
    return step;
  }
  void apply(std::span<const float> gradient, double lr) override {
    told_->rates.push_back(lr);
    learner_layer::apply(gradient, lr);
  }
  void merge_buffers(std::span<const float> mean, std::span<const float> contributed) override {
    told_->buffer_means = mean.size();
    told_->contributed = contributed.size();
    learner_layer::merge_buffers(mean, contributed);
  }

private:
  std::shared_ptr<script> told_;
};

struct PlateauLearner : ::testing::Test {
  static plateau_rule halving() { return {.peak = 0.1, .factor = 0.5, .patience = 1}; }
  std::shared_ptr<learner> make(const toy_options& toy = {}, const plateau_rule& rule = halving()) {
    auto made = with_plateau(
      [&]() -> result<std::unique_ptr<learner>> {
        return std::unique_ptr<learner>{std::make_unique<scripted_learner>(toy, told)};
      },
      rule)();
    EXPECT_TRUE(made);
    return std::move(*made);
  }
  /// The vector of a round whose mean loss is `loss`.
  static float_vector mean_of(const learner& model, float loss) {
    float_vector mean(model.gradient_count(), 0.25F);
    mean.back() = loss;
    return mean;
  }
  static void end_epochs(trained_model& model, const std::vector<float>& losses) {
    for (float loss : losses)
      model.step(mean_of(model.computes(), loss), 0.1, {});
  }
  static float loss_in(learner& model) {
    auto pool = vector_pool::make(2);
    return model.take_mean_vector(*pool).values->back();
  }

  std::shared_ptr<script> told = std::make_shared<script>();
};

TEST_F(PlateauLearner, WithoutARuleThereIsNoOther) {
  auto made = with_plateau(
    []() -> result<std::unique_ptr<learner>> {
      return std::unique_ptr<learner>{make_toy_learner({})};
    },
    std::nullopt)();
  EXPECT_EQ((*made)->schema(), make_toy_learner({})->schema());
  EXPECT_EQ((*made)->plateau_state(), std::nullopt);
}

TEST_F(PlateauLearner, AddsOneAveragedValueAndItsState) {
  for (bool buffer : {false, true}) {
    auto plain = make_toy_learner({.buffer = buffer});
    auto model = make({.buffer = buffer});
    EXPECT_EQ(model->gradient_count(), plain->gradient_count() + 1);
    EXPECT_EQ(model->parameter_count(), plain->parameter_count());
    EXPECT_NE(model->schema(), plain->schema()) << "peers with and without cannot average";
    auto infos = *averaged_tensors::of(model->tensors(), lane{})->get()->infos();
    EXPECT_EQ(infos.back().key, "schedule/loss");
    EXPECT_EQ(infos.back().role, tensor_role::metric);
    EXPECT_EQ(infos.back().elements, 1U);
    EXPECT_EQ(infos.size(), buffer ? 3U : 2U);
  }
}

TEST_F(PlateauLearner, ContributesTheMeanLossOfItsSamples) {
  auto model = make();
  told->steps = {{1.0, 4, true}, {4.0, 8, true}};
  model->accumulate();
  model->accumulate();
  EXPECT_FLOAT_EQ(loss_in(*model), 3.0F) << "(1·4 + 4·8) / 12";
  told->steps = {{5.0, 4, true}};
  model->accumulate();
  EXPECT_FLOAT_EQ(loss_in(*model), 5.0F) << "the losses were taken with the gradient";
  EXPECT_EQ(loss_in(*model), 0.0F) << "without samples, as all other values";
}

TEST_F(PlateauLearner, PassesThatAreNotInTheGradientDoNotCount) {
  auto model = make();
  told->steps = {{1.0, 4, true}, {NAN, 4, false}, {2.0, 4, true, 4}};
  for (int i = 0; i < 3; ++i)
    model->accumulate();
  EXPECT_FLOAT_EQ(loss_in(*model), 1.0F) << "one was not finite, one was lost while it ran";
  told->steps = {{1.0, 4, true}, {9.0, 4, false, 4}, {3.0, 4, true}};
  for (int i = 0; i < 3; ++i)
    model->accumulate();
  EXPECT_FLOAT_EQ(loss_in(*model), 3.0F) << "an overflow in place takes the earlier passes with it";
  told->steps = {{1.0, 4, true}, {9.0, 4, true, 8}, {3.0, 4, true}};
  for (int i = 0; i < 3; ++i)
    model->accumulate();
  EXPECT_FLOAT_EQ(loss_in(*model), 3.0F) << "so does a sum that was not cleared";
  told->steps = {{1.0, 4, true}, {NAN, 4, true}, {3.0, 4, true}};
  for (int i = 0; i < 3; ++i)
    model->accumulate();
  EXPECT_FALSE(model->waits_for_pass());
  EXPECT_FLOAT_EQ(loss_in(*model), 2.0F) << "one over samples without text has no loss";
  told->steps = {{7.0, 4, true}, {2.0, 4, true}};
  model->accumulate();
  model->drop_gradient();
  model->accumulate();
  EXPECT_FLOAT_EQ(loss_in(*model), 2.0F);
}

// The trainer's thread must not wait: it decides for all peers of this one.
TEST_F(PlateauLearner, SaysThatAPassIsInTheGradientWhoseLossIsNotKnown) {
  auto model = make();
  told->steps = {{2.0, 4, true}, {4.0, 4, true}};
  std::vector<bool> waits{model->waits_for_pass()};
  told->summed = [&] { waits.push_back(model->waits_for_pass()); };
  for (int pass = 0; pass < 2; ++pass) {
    model->accumulate();
    waits.push_back(model->waits_for_pass());
  }
  EXPECT_THAT(waits, ElementsAre(false, true, false, true, false));
  EXPECT_FLOAT_EQ(loss_in(*model), 3.0F);
}

TEST_F(PlateauLearner, TakesAGradientWithoutWaitingForTheLossOfItsLastPass) {
  auto model = make();
  told->steps = {{2.0, 4, true}, {8.0, 4, true}};
  model->accumulate();
  float taken = 0;
  told->summed = [&] { taken = loss_in(*model); }; // the loss cannot come before this returns
  model->accumulate();
  EXPECT_FLOAT_EQ(taken, 2.0F);
  EXPECT_FALSE(model->waits_for_pass()) << "its loss came too late, and is one of the next update";
}

TEST_F(PlateauLearner, NothingWaitsForLossesThatNeverCome) {
  auto model = make();
  told->steps = {{8.0, 0, true}, {2.0, 4, true}}; // of the first pass there is no loss
  model->accumulate();
  bool waits = false;
  told->summed = [&] { waits = model->waits_for_pass(); };
  model->accumulate();
  EXPECT_TRUE(waits) << "the second one's is about to come";
  EXPECT_FALSE(model->waits_for_pass());
}

// A drop on the trainer's thread, while a pass is between its gradient and its loss.
TEST_F(PlateauLearner, AnUnfinishedEpochWithLossesOfDroppedSamplesIsLoadedWithoutThem) {
  auto model = make();
  told->steps = {{2.0, 4, true}, {3.0, 4, true}};
  std::shared_ptr<learner> dropped = model;
  told->summed = [&] {
    dropped->drop_gradient();
    told->summed = [] {};
  };
  model->accumulate();
  model->accumulate();
  auto partial = model->copy_gradient();
  EXPECT_EQ(partial.samples, 4U) << "of the second pass";
  auto next = make();
  ASSERT_TRUE(next->load_gradient(partial)) << "with the losses of 8 samples";
  EXPECT_EQ(next->accumulated_samples(), 4U);
  EXPECT_EQ(loss_in(*next), plateau::unknown_loss);
}

TEST_F(PlateauLearner, ALossThatDoesNotComeIsTheLastOneOrUnknown) {
  // A pass whose samples were lost: in the gradient, without a loss.
  auto unseen = [&](learner& model) {
    told->steps = {{8.0, 0, true}};
    model.accumulate();
  };
  auto model = make();
  unseen(*model);
  EXPECT_EQ(loss_in(*model), plateau::unknown_loss);
  told->steps = {{2.0, 4, true}};
  model->accumulate();
  (void)loss_in(*model);
  unseen(*model);
  EXPECT_FLOAT_EQ(loss_in(*model), 2.0F);
  ASSERT_TRUE(testing::load_state(*model, testing::save_state(*model)));
  unseen(*model);
  EXPECT_EQ(loss_in(*model), plateau::unknown_loss) << "the last one is of other parameters";
  told->steps = {{1e25, 4, true}};
  model->accumulate();
  EXPECT_EQ(loss_in(*model), plateau::unknown_loss) << "finite for the round, whatever it is";
}

TEST_F(PlateauLearner, LowersTheRateFromTheUpdateAfterTheLossOn) {
  trained_model model{make()};
  end_epochs(model, {1, 1, 1, 1});
  EXPECT_THAT(told->rates, ElementsAre(0.1, 0.1, 0.1, 0.05));
  auto state = model.computes().plateau_state();
  ASSERT_TRUE(state);
  EXPECT_EQ(state->reductions, 1U);
  EXPECT_EQ(state->rate, 0.05);
  EXPECT_FALSE(state->lowered) << "by the loss before the last one";
  EXPECT_EQ(state->best, 1);
  end_epochs(model, {1});
  state = model.computes().plateau_state();
  EXPECT_TRUE(state->lowered);
  EXPECT_EQ(state->rate_before, 0.05);
  EXPECT_EQ(state->rate, 0.025);
}

TEST_F(PlateauLearner, AnEpochWithoutAGradientOrWithAnUnknownLossChangesNothing) {
  trained_model model{make()};
  end_epochs(model, {1, 1});
  for (int i = 0; i < 5; ++i)
    model.step({}, 0.1, {});
  end_epochs(model, {plateau::unknown_loss, plateau::unknown_loss / 1'000});
  EXPECT_EQ(model.computes().plateau_state()->reductions, 0U);
  end_epochs(model, {1});
  EXPECT_EQ(model.computes().plateau_state()->reductions, 1U);
}

TEST_F(PlateauLearner, EpochsBeforeItBeginsDoNotCountAndHaveTheRateOfTheirOwnSchedule) {
  auto rule = halving();
  rule.begins = epoch_id{4};
  trained_model model{make({}, rule)};
  for (int e = 0; e < 4; ++e)
    model.step(mean_of(model.computes(), 0.01F), 0.02 * (e + 1), {}); // a loss never reached again
  end_epochs(model, {1, 1, 1, 1});
  EXPECT_THAT(told->rates, ElementsAre(0.02, 0.04, 0.06, 0.08, 0.1, 0.1, 0.1, 0.05));
}

TEST_F(PlateauLearner, BuffersAreMergedAsWithoutIt) {
  auto model = make({.parameters = 8, .buffer = true});
  trained_model trained{model};
  told->steps = {{0.5, 4, true}};
  model->accumulate();
  auto pool = vector_pool::make(2);
  auto taken = model->take_mean_vector(*pool);
  auto plain = make_toy_learner({.parameters = 8, .buffer = true});
  plain->accumulate();
  auto expected = plain->take_mean_vector(*pool);
  EXPECT_TRUE(std::equal(expected.values->begin(), expected.values->end(), taken.values->begin()));
  EXPECT_EQ(taken.samples, 4U);
  EXPECT_EQ(taken.values->back(), 0.5F);
  std::vector<float> contributed(8, 0.0F);
  trained.step(*taken.values, 0.1, {}, contributed);
  EXPECT_EQ(told->buffer_means, 8U);
  EXPECT_EQ(told->contributed, 8U);
  model->accumulate();
  EXPECT_EQ(model->take_mean_vector(*pool).merges, 1U);
}

TEST_F(PlateauLearner, TheStateContinuesWhereItWasDonated) {
  for (bool buffer : {false, true}) {
    trained_model donor{make({.buffer = buffer})};
    end_epochs(donor, {3, 2, 2, 2, 2});
    trained_model joiner{make({.init_seed = 99, .buffer = buffer})};
    ASSERT_TRUE(testing::load_state(joiner.computes(), testing::save_state(donor.computes())));
    EXPECT_EQ(testing::save_state(joiner.computes()), testing::save_state(donor.computes()));
    end_epochs(donor, {2, 2, 2});
    end_epochs(joiner, {2, 2, 2});
    EXPECT_EQ(testing::save_state(joiner.computes()), testing::save_state(donor.computes()))
      << "rates and all";
    EXPECT_EQ(donor.computes().plateau_state()->reductions, 3U);
    EXPECT_EQ(joiner.parameters(), donor.parameters());
  }
}

TEST_F(PlateauLearner, IsFoundInTheStateOfALayerAboveIt) {
  auto with_samples = [&](std::uint64_t seed) {
    auto plain = [seed]() -> result<std::unique_ptr<learner>> {
      return std::unique_ptr<learner>{make_toy_learner({.init_seed = seed})};
    };
    return *with_ledger(with_plateau(plain, halving()),
                        std::make_shared<sample_draws>(peer_id{}, 100, "run"))();
  };
  auto donor = with_samples(1);
  auto joiner = with_samples(2);
  ASSERT_TRUE(testing::load_state(*joiner, testing::save_state(*donor)));
  EXPECT_EQ(testing::save_state(*joiner), testing::save_state(*donor));
}

TEST_F(PlateauLearner, AnImageWithAnImpossibleStateChangesNothing) {
  trained_model model{make()};
  end_epochs(model, {1, 1, 1, 1});
  auto& computes = model.computes();
  auto before = testing::save_state(computes);
  const auto& table = computes.tensors();
  std::size_t own = 0;
  while (table[own].name != "schedule/plateau")
    ++own;
  auto with = [&](std::size_t which, float value) {
    auto image = before;
    auto at = table.header_bytes() + (table.offset(own) + which) * sizeof(float);
    std::memcpy(image.data() + at, &value, sizeof value);
    std::memset(image.data() + table.header_bytes(), 0, sizeof value); // another parameter
    return image;
  };
  struct wrong {
    std::size_t which;
    float value;
    ec code;
  };
  for (auto [which, value, code] : {wrong{0, NAN, ec::non_finite},
                                    {0, 1e21F, ec::malformed},
                                    {1, 2, ec::malformed},
                                    {1, -1, ec::malformed},
                                    {2, 1, ec::malformed},
                                    {3, -1, ec::malformed},
                                    {3, 0.5F, ec::malformed},
                                    {3, 1e9F, ec::malformed}}) {
    auto loaded = testing::load_state(computes, with(which, value));
    ASSERT_FALSE(loaded) << which << " " << value;
    EXPECT_EQ(loaded.error().code, code) << which << " " << value;
    EXPECT_EQ(testing::save_state(computes), before) << "all or nothing";
  }
  EXPECT_TRUE(testing::load_state(computes, with(3, 2)));
  EXPECT_EQ(computes.plateau_state()->rate, 0.025);
}

TEST_F(PlateauLearner, WorksAroundClippingAndUnderIt) {
  auto inner = [this]() -> result<std::unique_ptr<learner>> {
    return std::unique_ptr<learner>{std::make_unique<scripted_learner>(toy_options{}, told)};
  };
  for (const auto& make : {with_plateau(clipped(inner, 0.01), halving()),
                           clipped(with_plateau(inner, halving()), 0.01)}) {
    told->rates.clear();
    auto made = make();
    trained_model model{std::shared_ptr<learner>{std::move(*made)}};
    end_epochs(model, {1, 1, 1, 1});
    EXPECT_THAT(told->rates, ElementsAre(0.1, 0.1, 0.1, 0.05));
    ASSERT_TRUE(model.computes().plateau_state());
    auto image = testing::save_state(model.computes());
    EXPECT_TRUE(testing::load_state(model.computes(), image));
    image[image.size() - 2 * sizeof(float)] = std::byte{1}; // reductions
    EXPECT_FALSE(testing::load_state(model.computes(), image));
  }
}

TEST_F(PlateauLearner, TheLossIsAveragedBesideTheFactorsOfLowRank) {
  auto model = make({.parameters = 256, .rows = 16});
  auto coding = low_rank::make(model->tensors(), {2, 0.1}, "run");
  ASSERT_NE(coding, nullptr);
  ASSERT_EQ(coding->second_tensors().size(), 2U);
  EXPECT_EQ(coding->second_tensors().back().role, tensor_role::metric);
  EXPECT_EQ(elements_of(coding->first_tensors()), 32U) << "without the loss";
}

} // namespace
} // namespace waggle
