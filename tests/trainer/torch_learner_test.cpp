#include "trainer/torch_learner.hpp"

#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/training/layers.hpp"
#include "runtime/training/model_table.hpp"
#include "runtime/training/optimizer_table.hpp"
#include "runtime/training/trained_model.hpp"
#include "tests/support/mean_gradient.hpp"
#include "tests/support/scratch_folder.hpp"
#include "tests/support/states.hpp"
#include "tests/trainer/image_folder.hpp"
#include "tests/trainer/small_learner.hpp"

namespace waggle {

namespace {

using testing::mean_gradient_of, testing::parameters_of;
constexpr auto& make = testing::made;

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;

learner_config small(const std::string& model = "char-gpt",
                     const std::string& optimizer = "adamw") {
  auto c = testing::small_learner(identity_with(optimizer, {}));
  c.model = model;
  if (optimizer == "sgd")
    c.optimizer.momentum = 0.9;
  return c;
}

std::unique_ptr<learner> make_with_batch(learner_config config, std::int64_t micro_batch) {
  config.micro_batch = micro_batch;
  return make(config);
}

void train(learner& model, int steps, double lr = 1e-2) {
  for (int i = 0; i < steps; ++i) {
    model.accumulate();
    model.apply(mean_gradient_of(model), lr);
    model.drop_gradient();
  }
}

void expect_close(const std::vector<float>& a, const std::vector<float>& b) {
  ASSERT_EQ(a.size(), b.size());
  for (std::size_t i = 0; i < a.size(); ++i)
    ASSERT_NEAR(a[i], b[i], 1e-6 + 1e-4 * std::abs(b[i])) << "value " << i;
}

std::vector<std::byte> copy_of(std::vector<std::byte> state) {
  return state;
}

void overwrite(std::vector<std::byte>& state, std::size_t at, const auto& value) {
  std::memcpy(state.data() + at, &value, sizeof value);
}

struct text_folder : testing::scratch_folder {
  fs::path write(const std::string& name, const std::string& text) const {
    std::ofstream{path() / name} << text;
    return path() / name;
  }
};

// A row of the tables without what computes it ends the process.
TEST(TorchLearner, EveryModelAndOptimizerOfTheTablesTrains) {
  image_folder images;
  for (const auto& model : model_table())
    for (const auto& optimizer : optimizer_table()) {
      auto config = small(std::string{model.name}, std::string{optimizer.name});
      if (model.images)
        config.data = images.path.string();
      auto made = make(config);
      ASSERT_TRUE(made) << model.name << " " << optimizer.name;
      auto before = made->parameters_digest();
      train(*made, 1);
      EXPECT_NE(made->parameters_digest(), before) << model.name << " " << optimizer.name;
    }
}

// -- accumulating ---------------------------------------------------------------------------------

TEST(TorchLearner, SmallBatchesAccumulateToTheGradientOfOneLargeBatch) {
  for (const auto* model : {"char-gpt", "mlp"}) {
    auto large = make_with_batch(small(model), 12);
    auto pieces = make_with_batch(small(model), 4); // draws the same windows, four at a time
    auto whole = large->accumulate();
    double loss = 0;
    for (int i = 0; i < 3; ++i)
      loss += pieces->accumulate().loss / 3;
    EXPECT_NEAR(loss, whole.loss, 1e-5);
    EXPECT_EQ(pieces->accumulated_samples(), 12u);
    expect_close(mean_gradient_of(*pieces), mean_gradient_of(*large));
  }
}

// The mean of the gradients of two peers with unequal batches, weighted by their samples, is the
// gradient over all samples.
TEST(TorchLearner, UnequalShareOfSamplesIsWeightedRightly) {
  auto config = small();
  auto whole = make_with_batch(config, 12);
  whole->accumulate();
  auto first = make_with_batch(config, 3); // windows 1 to 3
  first->accumulate();
  auto second = make_with_batch(config, 3); // windows 4 to 12
  second->accumulate();
  second->drop_gradient();
  for (int i = 0; i < 3; ++i)
    second->accumulate();
  auto a = mean_gradient_of(*first);
  auto b = mean_gradient_of(*second);
  std::vector<float> mean(a.size());
  for (std::size_t i = 0; i < mean.size(); ++i)
    mean[i] = (a[i] * 3 + b[i] * 9) / 12;
  expect_close(mean, mean_gradient_of(*whole));
}

TEST(TorchLearner, AccumulatingLeavesTheParametersAlone) {
  auto model = make(small());
  auto before = model->parameters_digest();
  auto state = copy_of(testing::save_state(*model));
  model->accumulate();
  EXPECT_EQ(model->parameters_digest(), before);
  EXPECT_EQ(copy_of(testing::save_state(*model)), state);
}

// -- stepping ------------------------------------------------------------------------------------

TEST(TorchLearner, EqualSeedsGiveEqualBytesAllTheWay) {
  for (const auto* model : {"char-gpt", "mlp"}) {
    auto a = make(small(model));
    auto b = make(small(model));
    EXPECT_EQ(a->parameters_digest(), b->parameters_digest());
    train(*a, 5);
    train(*b, 5);
    EXPECT_EQ(a->parameters_digest(), b->parameters_digest());
    EXPECT_EQ(copy_of(testing::save_state(*a)), copy_of(testing::save_state(*b)));
  }
}

TEST(TorchLearner, PeersWithTheirOwnSamplesBeginEqualAndStayEqualUnderEqualGradients) {
  auto config = small();
  auto a = make(config);
  config.data_seed = 6;
  auto b = make(config);
  EXPECT_EQ(a->parameters_digest(), b->parameters_digest());
  for (int i = 0; i < 4; ++i) {
    a->accumulate();
    b->accumulate();
    EXPECT_NE(mean_gradient_of(*a), mean_gradient_of(*b));
    auto shared = mean_gradient_of(*a);
    for (auto* model : {a.get(), b.get()}) {
      model->apply(shared, 1e-2);
      model->drop_gradient();
    }
    EXPECT_EQ(a->parameters_digest(), b->parameters_digest());
  }
}

TEST(TorchLearner, AnotherInitSeedGivesAnotherModel) {
  auto config = small();
  auto a = make(config);
  ++config.init_seed;
  EXPECT_NE(a->parameters_digest(), make(config)->parameters_digest());
}

TEST(TorchLearner, PlainSgdMovesAgainstTheGradient) {
  auto config = small("mlp", "sgd");
  config.optimizer.momentum = 0;
  auto model = make(config);
  auto before = parameters_of(*model);
  model->apply(std::vector<float>(before.size(), 2.0F), 0.25);
  auto after = parameters_of(*model);
  for (std::size_t i = 0; i < before.size(); ++i)
    ASSERT_FLOAT_EQ(after[i], before[i] - 0.5F);
}

TEST(TorchLearner, NeedsAVectorForEarlierPassesOnlyFromTheSecondPassOn) {
  auto model = make(small());
  auto plain = make(small());
  auto pool = vector_pool::make(2);
  model->use_vectors(pool);
  for (int passes = 1; passes <= 4; ++passes) {
    for (int i = 0; i < passes; ++i) {
      model->accumulate();
      plain->accumulate();
      EXPECT_EQ(pool->lent(), i == 0 ? 0U : 1U);
    }
    EXPECT_EQ(mean_gradient_of(*model), mean_gradient_of(*plain)) << passes << " passes";
    EXPECT_EQ(pool->lent(), 0U);
  }
  for (int passes = 1; passes <= 3; ++passes) {
    for (int i = 0; i < passes; ++i) {
      model->accumulate();
      plain->accumulate();
    }
    auto samples = plain->accumulated_samples();
    auto mean = model->take_mean_vector(*pool);
    EXPECT_EQ(mean.samples, samples);
    EXPECT_EQ((std::vector<float>{mean.values->begin(), mean.values->end()}),
              mean_gradient_of(*plain));
    EXPECT_EQ(pool->lent(), 1U) << "the accumulator itself is returned";
    EXPECT_EQ(model->accumulated_samples(), 0U);
    model->accumulate(); // possible while the vector is being sent
    plain->accumulate();
    EXPECT_EQ(mean_gradient_of(*model), mean_gradient_of(*plain));
  }
  auto nothing = model->take_mean_vector(*pool);
  EXPECT_EQ(nothing.samples, 0U);
  EXPECT_EQ(*nothing.values, float_vector(model->parameter_count()));
  nothing = {};
  model->accumulate();
  model->accumulate();
  EXPECT_EQ(model->drop_gradient(), 2 * small().micro_batch);
  EXPECT_EQ(pool->lent(), 0U);
  EXPECT_EQ(model->accumulated_samples(), 0U);
}

// -- state ---------------------------------------------------------------------------------------

TEST(TorchLearner, StateCarriesParametersAndStatisticsToAnotherPeerExactly) {
  for (const auto& row : optimizer_table()) {
    std::string optimizer{row.name};
    auto donor = make(small("char-gpt", optimizer));
    train(*donor, 3);
    auto config = small("char-gpt", optimizer);
    config.init_seed = 99;
    auto joiner = make(config);
    auto state = testing::save_state(*donor);
    auto loaded = testing::load_state(*joiner, state);
    ASSERT_TRUE(loaded) << loaded.error().detail;
    EXPECT_EQ(joiner->parameters_digest(), donor->parameters_digest());
    EXPECT_EQ(copy_of(testing::save_state(*joiner)), copy_of(state));
    donor->accumulate();
    auto next = mean_gradient_of(*donor);
    donor->apply(next, 1e-2);
    joiner->apply(next, 1e-2);
    EXPECT_EQ(copy_of(testing::save_state(*joiner)), copy_of(testing::save_state(*donor)))
      << optimizer;
  }
}

TEST(TorchLearner, SavedStateDoesNotFollowTheModel) {
  auto model = make(small());
  auto state = testing::save_state(*model);
  auto copy = copy_of(state);
  train(*model, 1);
  EXPECT_EQ(copy_of(state), copy);
}

class BadState : public ::testing::Test {
protected:
  BadState() {
    train(*model, 2);
    image = copy_of(testing::save_state(*model));
  }
  /// Returns the error code of the refusal. Checks that the state of the learner is unchanged.
  ec refusal(const std::vector<std::byte>& state) {
    auto loaded = testing::load_state(*model, {state.data(), state.size()});
    EXPECT_EQ(copy_of(testing::save_state(*model)), image);
    return loaded ? ec::none : loaded.error().code;
  }
  [[nodiscard]] std::size_t header() const { return model->tensors().header_bytes(); }
  [[nodiscard]] std::size_t block() const { return model->parameter_count() * sizeof(float); }

  std::unique_ptr<learner> model = make(small());
  std::vector<std::byte> image;
};

TEST_F(BadState, CountThatWouldOverflowIsRefused) {
  auto state = image;
  overwrite(state, 48, ~std::uint64_t{0} / 4 + 1); // the number of bytes of the table
  EXPECT_EQ(refusal(state), ec::malformed);
  state = image;
  overwrite(state, 40, ~std::uint64_t{0}); // the number of the next step would overflow to 0
  EXPECT_EQ(refusal(state), ec::malformed);
}

TEST_F(BadState, NonFiniteValueInAnyBlockIsRefused) {
  for (std::size_t b = 0; b < 3; ++b)
    for (float value : {std::nanf(""), INFINITY, -INFINITY}) {
      auto state = image;
      overwrite(state, header() + b * block() + 4 * (17 + b), value);
      EXPECT_EQ(refusal(state), ec::non_finite) << "block " << b;
    }
}

TEST_F(BadState, StateOfAnotherOptimizerIsRefused) {
  EXPECT_EQ(refusal(copy_of(testing::save_state(*make(small("char-gpt", "adam"))))),
            ec::schema_mismatch);
}

// -- schema --------------------------------------------------------------------------------------

TEST(TorchLearner, SchemaDiffersExactlyWhenPeersCannotShare) {
  auto base = make(small())->schema();
  auto with = [](auto&& change) {
    auto config = small();
    change(config);
    return make(config)->schema();
  };
  using config = learner_config;
  EXPECT_NE(base, with([](config& c) { c.model = "mlp"; }));
  EXPECT_NE(base, with([](config& c) { c.layers = 2; }));
  EXPECT_NE(base, with([](config& c) { c.width = 32; }));
  EXPECT_NE(base, with([](config& c) { c.heads = 4; })); // the same shapes, but another function
  EXPECT_NE(base, with([](config& c) { c.context = 13; }));
  EXPECT_NE(base, with([](config& c) { c.optimizer.kind = "adam"; }));
  EXPECT_NE(base, with([](config& c) { c.optimizer.beta2 = 0.95; }));
  EXPECT_NE(base, with([](config& c) { c.optimizer.weight_decay = 0.1; }));
  EXPECT_NE(base, with([](config& c) { c.optimizer.amsgrad = true; }));
  EXPECT_NE(with([](config& c) { c.optimizer.weight_decay = 0.1; }), with([](config& c) {
              c.optimizer.weight_decay = 0.1;
              c.optimizer.decay_vectors = false;
            }));
  EXPECT_EQ(base, with([](config& c) { c.init_seed = 77; }));
  EXPECT_EQ(base, with([](config& c) { c.data_seed = 77; }));
  EXPECT_EQ(base, with([](config& c) { c.micro_batch = 9; }));
  auto momentum = small("mlp", "sgd");
  auto without = momentum;
  without.optimizer.momentum = 0;
  EXPECT_NE(make(momentum)->schema(), make(without)->schema());
}

// -- learning ------------------------------------------------------------------------------------

TEST(TorchLearner, LossFallsOnTheSyntheticText) {
  for (const auto* name : {"char-gpt", "mlp"}) {
    auto config = small(name);
    config.width = 32;
    config.context = 8;
    config.micro_batch = 32;
    auto model = make(config);
    double first = 0;
    double last = 0;
    constexpr int steps = 150;
    for (int i = 0; i < steps; ++i) {
      auto step = model->accumulate();
      ASSERT_TRUE(step.finite);
      (i < 10 ? first : last) += i < 10 || i >= steps - 10 ? step.loss / 10 : 0;
      model->apply(mean_gradient_of(*model), 1e-2);
      model->drop_gradient();
    }
    EXPECT_LT(last, 0.6 * first) << name;
  }
}

// -- configuration -------------------------------------------------------------------------------

std::string complaint(const learner_config& config) {
  auto checked = check_learner_config(config);
  auto made = make_torch_learner(config);
  EXPECT_FALSE(checked);
  EXPECT_FALSE(made);
  if (checked || made)
    return "";
  EXPECT_EQ(checked.error().code, ec::bad_config);
  EXPECT_EQ(checked.error().detail, made.error().detail);
  return checked.error().detail;
}

/// All kinds of gradient sums: the loss must stand behind the same gradient.
TEST(TorchLearner, WithAPlateauItContributesTheLossAndLowersItsRate) {
  plateau_rule rule{.peak = 1e-2, .factor = 0.5, .patience = 0};
  for (bool reuse : {false, true})
    for (bool offload : {false, true}) {
      auto config = small();
      config.reuse_gradient_buffers = reuse;
      config.offload_optimizer = offload;
      auto pool = vector_pool::make(4);
      auto plain = make(config);
      plain->use_vectors(pool);
      auto made = with_plateau([&] { return make_torch_learner(config); }, rule)();
      std::shared_ptr<learner> lowers{std::move(*made)};
      lowers->use_vectors(pool);
      EXPECT_EQ(lowers->abilities().passes_beside_updates,
                plain->abilities().passes_beside_updates);
      trained_model model{lowers};
      double rate = 1e-2;
      for (int epoch = 0; epoch < 4; ++epoch) {
        double loss = 0;
        for (int pass = 0; pass < 3; ++pass) {
          auto step = plain->accumulate();
          auto same = lowers->accumulate();
          EXPECT_EQ(step.loss, same.loss) << epoch;
          loss += step.loss / 3;
        }
        auto expected = plain->take_mean_vector(*pool);
        auto mean = lowers->take_mean_vector(*pool);
        EXPECT_EQ(mean.samples, expected.samples);
        ASSERT_EQ(mean.values->size(), expected.values->size() + 1);
        EXPECT_TRUE(
          std::equal(expected.values->begin(), expected.values->end(), mean.values->begin()));
        EXPECT_NEAR(mean.values->back(), loss, 1e-5);
        auto round = std::make_shared<float_vector>(*mean.values);
        round->back() = 1; // of all peers: it stays
        plain->apply(*expected.values, rate);
        model.step(*round, 1e-2, {});
        EXPECT_EQ(parameters_of(*lowers), parameters_of(*plain)) << "with half the rate from 2 on";
        rate = epoch == 0 ? rate : rate / 2;
      }
      EXPECT_EQ(lowers->plateau_state()->reductions, 3U);
      auto other = with_plateau([&] { return make_torch_learner(config); }, rule)();
      EXPECT_NE(testing::save_state(**other), testing::save_state(*lowers));
      ASSERT_TRUE(testing::load_state(**other, testing::save_state(*lowers)));
      EXPECT_EQ(testing::save_state(**other), testing::save_state(*lowers));
      EXPECT_EQ((*other)->plateau_state()->rate, lowers->plateau_state()->rate);
    }
}

TEST(LearnerConfig, ErrorsNameTheOptionAndHowToCorrectIt) {
  auto config = small();
  config.device = "tpu";
  EXPECT_THAT(complaint(config), AllOf(HasSubstr("--device tpu"), HasSubstr("cuda")));
  config = small();
  config.data = "/nowhere/at/all";
  EXPECT_THAT(complaint(config),
              AllOf(HasSubstr("--data /nowhere/at/all"), HasSubstr("No such file")));
}

TEST(LearnerConfig, TextMustHoldOneWholeWindow) {
  text_folder folder;
  auto config = small();
  config.data = folder.write("short.txt", std::string(12, 'x')).string();
  EXPECT_THAT(complaint(config), AllOf(HasSubstr("13 bytes"), HasSubstr("--context")));
  config.data = folder.write("empty.txt", "").string();
  EXPECT_THAT(complaint(config), HasSubstr("13 bytes"));
  config.data = folder.write("enough.txt", std::string(13, 'x')).string();
  EXPECT_TRUE(check_learner_config(config));
}

TEST(LearnerConfig, FolderMustHoldSomeTextThatIsLongEnough) {
  text_folder folder;
  auto config = small();
  config.data = folder.path().string();
  EXPECT_THAT(complaint(config), HasSubstr("13 bytes"));
  folder.write("a.txt", "short");
  EXPECT_THAT(complaint(config), HasSubstr("13 bytes"));
  folder.write("b.txt", std::string(100, 'x'));
  EXPECT_TRUE(check_learner_config(config));
}

} // namespace

} // namespace waggle
