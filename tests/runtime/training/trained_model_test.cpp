#include "runtime/training/trained_model.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/crypto/digest.hpp"
#include "runtime/training/layers.hpp"
#include "runtime/training/step_count.hpp"
#include "runtime/training/strategy.hpp"
#include "tests/support/mean_gradient.hpp"
#include "tests/support/toy_learner.hpp"

namespace waggle::testing {
namespace {

struct TrainedModel : ::testing::Test {
  static std::shared_ptr<learner> make(const toy_options& options = {}) {
    return make_toy_learner(options);
  }
  static history line(std::uint64_t work) { return {sha256("branch"), {}, {}, work}; }
  static std::string image_of(trained_model& model) {
    auto sealed = seal(*model.copy_state(make_memory_store()));
    return std::string{as_string_view(read_all(**sealed)->view())};
  }

  std::vector<float> gradient = std::vector<float>(toy_options{}.parameters, 0.5F);
};

TEST_F(TrainedModel, EveryStepIsOneEpoch) { // INV-1, INV-7
  trained_model model{make()};
  for (std::uint64_t k = 1; k <= 3; ++k) {
    model.step(gradient, 0.1, line(k));
    EXPECT_EQ(model.epoch(), epoch_id{k});
    EXPECT_EQ(model.past(), line(k));
  }
}

TEST_F(TrainedModel, StepsAsTheLearnerWould) {
  trained_model model{make()};
  auto plain = make_toy_learner({});
  for (double rate : {0.1, 0.05}) {
    model.computes().accumulate();
    plain->accumulate();
    auto mean = mean_gradient_of(model.computes());
    EXPECT_EQ(mean, mean_gradient_of(*plain));
    model.step(mean, rate, {});
    plain->apply(mean, rate);
  }
  EXPECT_EQ(model.parameters(), plain->parameters_digest());
}

// Behind the tensors, a round may have counted steps.
TEST_F(TrainedModel, AChangeIsThatOfTheTensorsAlone) {
  auto toy = []() -> result<std::unique_ptr<learner>> {
    return std::unique_ptr<learner>{make_toy_learner({})};
  };
  auto wrapped = with_averaged_gradients(toy, true)();
  trained_model model{std::shared_ptr<learner>{std::move(*wrapped)}};
  strategy_settings how{.steps_in_epoch = 5, .average_gradients = true};
  auto lane = find_strategy("decentralized-sgd")->make(how).averages;
  auto averaged = *averaged_tensors::of(model.computes().tensors(), lane);
  ASSERT_EQ(averaged->value_count(), averaged->tensor_value_count() + step_values);
  auto& local = model.computes();
  local.accumulate();
  local.step_locally(0.1);
  float_vector snapshot(averaged->value_count());
  local.copy_tensors(averaged->indices(), snapshot);
  auto mean = snapshot;
  for (auto& x : mean)
    x += 1;
  model.add_change(*averaged, mean, snapshot, line(1));
  auto after = snapshot;
  local.copy_tensors(averaged->indices(), after);
  std::copy(snapshot.end() - step_values, snapshot.end(), mean.end() - step_values);
  EXPECT_EQ(after, mean);
}

TEST_F(TrainedModel, AnEpochWithoutAGradientLeavesTheParametersAlone) { // INV-4
  trained_model model{make()};
  auto before = model.parameters();
  model.step({}, 0.1, line(3));
  EXPECT_EQ(model.epoch(), epoch_id{1});
  EXPECT_EQ(model.parameters(), before);
}

TEST_F(TrainedModel, AStateIsTakenWholeWithItsHistory) {
  trained_model donor{make()};
  for (std::uint64_t k = 1; k <= 3; ++k)
    donor.step(gradient, 0.1, line(k));
  trained_model joiner{make({.init_seed = 99})};
  auto own = joiner.parameters();
  ASSERT_TRUE(joiner.load(as_byte_span(image_of(donor))).ok());
  EXPECT_EQ(joiner.epoch(), epoch_id{3});
  EXPECT_EQ(joiner.past(), line(3));
  EXPECT_NE(joiner.parameters(), own);
  EXPECT_EQ(joiner.parameters(), donor.parameters());
  EXPECT_EQ(image_of(joiner), image_of(donor));
}

TEST_F(TrainedModel, AStateOfAnotherHistoryOrOfAnEpochThatCannotBeChangesNothing) {
  trained_model donor{make()};
  for (std::uint64_t k = 1; k <= 3; ++k)
    donor.step(gradient, 0.1, line(k));
  auto image = image_of(donor);
  trained_model joiner{make({.init_seed = 99})};
  auto before = image_of(joiner);
  EXPECT_EQ(joiner.load(as_byte_span(image), {sha256("other"), epoch_id{9}}).error().code,
            ec::wrong_run);
  EXPECT_EQ(joiner.load(as_byte_span(image), {sha256("branch"), epoch_id{2}}).error().code,
            ec::epoch_mismatch);
  EXPECT_EQ(image_of(joiner), before);
  EXPECT_TRUE(joiner.load(as_byte_span(image), {sha256("branch"), epoch_id{3}}).ok());
}

TEST_F(TrainedModel, AStateThatIsForeignOrDamagedChangesNothing) {
  trained_model foreign{make({.parameters = 5})};
  foreign.step(std::vector<float>(5, 0.5F), 0.1, line(9));
  trained_model model{make()};
  model.step(gradient, 0.1, line(1));
  auto before = image_of(model);
  auto damaged = before;
  damaged.back() = static_cast<char>(damaged.back() ^ 1);
  EXPECT_EQ(model.load(as_byte_span(image_of(foreign))).error().code, ec::schema_mismatch);
  EXPECT_EQ(model.load(as_byte_span(damaged)).error().code, ec::hash_mismatch);
  EXPECT_EQ(model.load({}).error().code, ec::malformed);
  EXPECT_EQ(model.epoch(), epoch_id{1});
  EXPECT_EQ(image_of(model), before);
}

TEST_F(TrainedModel, ACopyDoesNotFollowTheModel) {
  trained_model model{make()};
  auto copied = model.copy_state(make_memory_store());
  ASSERT_TRUE(copied.ok());
  model.step(gradient, 0.1, line(1));
  auto image = seal(*std::move(copied));
  EXPECT_EQ(check_state(**image)->epoch, epoch_id{0});
  trained_model other{make({.init_seed = 99})};
  ASSERT_TRUE(other.load_from(**image).ok());
  EXPECT_EQ(other.parameters(), make()->parameters_digest());
}

std::vector<float> buffer_of(const learner& model) {
  std::vector<float> values(model.parameter_count());
  model.read_tensor(2, values);
  return values;
}

// INV-5 for what passes change: nothing is lost, and without later passes all peers hold the mean.
TEST_F(TrainedModel, MergesTheMeanOfTheBuffersIntoTheOwnOnes) {
  auto shared = make({.buffer = true});
  trained_model model{shared};
  auto count = shared->parameter_count();
  ASSERT_EQ(shared->gradient_count(), 2 * count);
  shared->accumulate();
  std::vector<float> given(2 * count);
  testing::take_mean_gradient(*shared, given);
  auto contributed = std::span<const float>{given}.subspan(count);
  auto mean = given;
  for (auto& x : std::span{mean}.subspan(count))
    x += 0.37F;

  model.step(mean, 0.1, {}, contributed);
  auto merged = buffer_of(*shared);
  for (std::size_t i = 0; i < count; ++i)
    EXPECT_EQ(merged[i], mean[count + i]) << "no pass since: exactly the mean";

  shared->accumulate();
  auto later = buffer_of(*shared);
  model.step(mean, 0.1, {}, merged);
  for (std::size_t i = 0; i < count; ++i)
    EXPECT_NEAR(buffer_of(*shared)[i], later[i] + (mean[count + i] - merged[i]), 1e-6);

  model.step(mean, 0.1, {}); // nothing was contributed
  for (std::size_t i = 0; i < count; ++i)
    EXPECT_EQ(buffer_of(*shared)[i], mean[count + i]);
}

} // namespace
} // namespace waggle::testing
