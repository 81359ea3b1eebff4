#include "runtime/training/trained_model.hpp"

#include <cmath>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/training/training_state.hpp"
#include "tests/support/mean_gradient.hpp"
#include "tests/support/toy_learner.hpp"

namespace waggle::testing {
namespace {

using fate = trained_model::own_samples;

/// Beside it a second handle on the learner, to see what became of it.
struct TrainedModel : ::testing::Test {
  std::unique_ptr<learner> make(const toy_options& options = {}) {
    auto made = make_toy_learner(options);
    inside = made.get();
    return made;
  }
  /// INV-2: what is pending is what the learner holds.
  void expect_balance(const trained_model& model, std::uint64_t given) {
    EXPECT_EQ(model.samples().pending, inside->accumulated_samples());
    EXPECT_EQ(model.samples().pending + model.samples().used + model.samples().dropped, given);
  }

  learner* inside = nullptr;
  std::vector<float> gradient = std::vector<float>(toy_options{}.parameters, 0.5F);
};

TEST_F(TrainedModel, EveryStepIsOneEpochAndUsesWhatWasAccumulated) { // INV-1, INV-2, INV-7
  trained_model model{make()};
  for (std::uint64_t k = 1; k <= 3; ++k) {
    model.accumulate();
    model.accumulate();
    expect_balance(model, 8 * k);
    EXPECT_EQ(model.step(gradient, 0.1, fate::used), 8U);
    EXPECT_EQ(model.epoch(), epoch_id{k});
    expect_balance(model, 8 * k);
  }
  EXPECT_EQ(model.samples().used, 24U);
}

TEST_F(TrainedModel, AMeanWithoutItsSamplesDropsThem) {
  trained_model model{make()};
  model.accumulate();
  EXPECT_EQ(model.step(gradient, 0.1, fate::dropped), 4U);
  EXPECT_EQ(model.samples().dropped, 4U);
  EXPECT_EQ(model.samples().used, 0U);
  expect_balance(model, 4);
}

TEST_F(TrainedModel, StepsAsTheLearnerWould) {
  trained_model model{make()};
  auto plain = make_toy_learner({});
  for (double rate : {0.1, 0.05}) {
    model.accumulate();
    plain->accumulate();
    std::vector<float> mean(model.parameter_count());
    model.mean_gradient(mean);
    EXPECT_EQ(mean, mean_gradient_of(*plain));
    model.step(mean, rate, fate::used);
    plain->apply(mean, rate);
    plain->reset_accumulators();
  }
  EXPECT_EQ(model.parameters(), plain->parameters_digest());
}

TEST_F(TrainedModel, DroppingEmptiesTheAccumulatorsAndNothingElse) {
  trained_model model{make()};
  auto before = model.parameters();
  model.accumulate();
  EXPECT_EQ(model.drop(), 4U);
  EXPECT_EQ(model.drop(), 0U);
  EXPECT_EQ(mean_gradient_of(*inside), std::vector<float>(model.parameter_count(), 0.0F));
  EXPECT_EQ(model.parameters(), before);
  EXPECT_EQ(model.epoch(), epoch_id{0});
  expect_balance(model, 4);
}

TEST_F(TrainedModel, AMicroStepThatIsNotFiniteIsDroppedAndCostsNoOther) {
  struct sometimes_infinite final : learner {
    std::unique_ptr<learner> good = make_toy_learner({});
    int step = 0;

    std::size_t parameter_count() const override { return good->parameter_count(); }
    digest schema() const override { return good->schema(); }
    micro_step accumulate() override {
      return ++step == 2 ? micro_step{std::nan(""), 4, false} : good->accumulate();
    }
    void mean_gradient(std::span<float> out) override { good->mean_gradient(out); }
    std::uint64_t accumulated_samples() const override { return good->accumulated_samples(); }
    void reset_accumulators() override { good->reset_accumulators(); }
    void apply(std::span<const float> g, double lr) override { good->apply(g, lr); }
    digest parameters_digest() const override { return good->parameters_digest(); }
    payload save_state() const override { return good->save_state(); }
    status load_state(byte_span state) override { return good->load_state(state); }
  };
  auto made = std::make_unique<sometimes_infinite>();
  inside = made.get();
  trained_model model{std::move(made)};
  EXPECT_TRUE(model.accumulate().finite);
  EXPECT_FALSE(model.accumulate().finite);
  EXPECT_TRUE(model.accumulate().finite);
  EXPECT_EQ(model.samples().pending, 8U);
  EXPECT_EQ(model.samples().dropped, 4U);
  expect_balance(model, 12);
}

// -- the state -----------------------------------------------------------------------------------

TEST_F(TrainedModel, AStateOfALaterEpochIsTakenWholeAndCostsWhatWasAccumulated) {
  trained_model donor{make()};
  for (int k = 0; k < 3; ++k) {
    donor.accumulate();
    donor.step(gradient, 0.1, fate::used);
  }
  trained_model joiner{make({.init_seed = 99})};
  auto own = joiner.parameters();
  joiner.accumulate();
  auto dropped = joiner.load(donor.image().view());
  ASSERT_TRUE(dropped.ok());
  EXPECT_EQ(*dropped, 4U);
  EXPECT_EQ(joiner.epoch(), epoch_id{3});
  EXPECT_NE(joiner.parameters(), own);
  EXPECT_EQ(joiner.parameters(), donor.parameters());
  expect_balance(joiner, 4);
  EXPECT_EQ(as_string_view(joiner.image().view()), as_string_view(donor.image().view()));
}

TEST_F(TrainedModel, AStateThatIsOlderForeignOrDamagedChangesNothing) {
  trained_model older{make()};
  trained_model foreign{make({.parameters = 5})};
  for (int k = 0; k < 3; ++k)
    foreign.step(std::vector<float>(5, 0.5F), 0.1, fate::used);
  trained_model model{make()};
  model.step(gradient, 0.1, fate::used);
  model.accumulate();
  auto before = std::string{as_string_view(model.image().view())};
  auto damaged = before;
  damaged.back() = static_cast<char>(damaged.back() ^ 1);
  auto parameters = model.parameters();

  EXPECT_EQ(model.load(older.image().view()).error().code, ec::epoch_mismatch); // INV-1
  EXPECT_EQ(model.load(foreign.image().view()).error().code, ec::schema_mismatch);
  EXPECT_EQ(model.load(as_byte_span(damaged)).error().code, ec::hash_mismatch);
  EXPECT_EQ(model.load({}).error().code, ec::malformed);
  EXPECT_EQ(model.epoch(), epoch_id{1});
  EXPECT_EQ(model.samples().pending, 4U);
  EXPECT_EQ(model.parameters(), parameters);
  EXPECT_EQ(inside->parameters_digest(), parameters);
  EXPECT_EQ(as_string_view(model.image().view()), before);
}

TEST_F(TrainedModel, TheImageIsSharedWithinAnEpochAndMadeAnewAfterAStep) {
  trained_model model{make()};
  auto first = model.image();
  model.accumulate();
  EXPECT_EQ(model.image().data, first.data);
  model.step(gradient, 0.1, fate::used);
  auto second = model.image();
  EXPECT_NE(second.data, first.data);
  auto before = decode_state(first.view());
  auto after = decode_state(second.view());
  ASSERT_TRUE(before.ok() && after.ok()) << "the first outlives the step";
  EXPECT_EQ(before->epoch, epoch_id{0});
  EXPECT_EQ(after->epoch, epoch_id{1});
  EXPECT_EQ(after->parameters, model.parameters());
  EXPECT_NE(after->parameters, before->parameters);
}

TEST_F(TrainedModel, ItsCheckpointIsItsImage) {
  trained_model model{make()};
  model.step(gradient, 0.1, fate::used);
  checkpoint_store checkpoints{std::make_shared<memory_disk>(), "/data"};
  ASSERT_TRUE(model.save(checkpoints).ok());
  auto found = checkpoints.load_newest(model.schema());
  ASSERT_TRUE(found.ok() && found->newest);
  EXPECT_EQ(found->newest->epoch, epoch_id{1});
  EXPECT_EQ(found->newest->image, as_string_view(model.image().view()));
}

} // namespace
} // namespace waggle::testing
