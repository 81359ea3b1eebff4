// A learner that ends after any pass and is made again from what it left continues as without the
// end, bit for bit.

#include <fstream>

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "tests/support/mean_gradient.hpp"
#include "tests/support/states.hpp"
#include "tests/trainer/small_learner.hpp"

namespace waggle {
namespace {

using testing::mean_gradient_of;

constexpr int passes_per_update = 3;
constexpr int updates = 4;

struct variant {
  const char* name;
  void (*set)(learner_config& config);
};

void PrintTo(const variant& v, std::ostream* out) {
  *out << v.name;
}

class ResumedTorchLearner : public ::testing::TestWithParam<variant> {
protected:
  static std::unique_ptr<learner> make(std::uint64_t init_seed) {
    auto c = testing::small_learner();
    c.micro_batch = 8;
    c.init_seed = init_seed;
    GetParam().set(c);
    return testing::made(c);
  }

  /// Passes number `from` to `to`, and the updates after them.
  static void train(learner& model, int from, int to) {
    for (int i = from; i < to; ++i) {
      EXPECT_TRUE(model.accumulate().finite);
      if ((i + 1) % passes_per_update == 0)
        model.apply(mean_gradient_of(model), 1e-2);
    }
  }

  /// What `model` leaves is all that its successor has.
  static std::unique_ptr<learner> successor(learner& model) {
    auto* left = &model;
    auto made = make(99);
    auto* resumes = made.get();
    EXPECT_TRUE(testing::load_state(*made, testing::save_state(model)));
    EXPECT_TRUE(made->load_own_state(model.own_state()));
    EXPECT_TRUE(resumes->load_position(left->position()));
    if (auto partial = left->copy_gradient(); partial.samples > 0) {
      EXPECT_TRUE(resumes->load_gradient(partial));
    }
    EXPECT_EQ(made->accumulated_samples(), model.accumulated_samples());
    EXPECT_EQ(made->own_state(), model.own_state());
    return made;
  }
};

TEST_P(ResumedTorchLearner, ContinuesBitForBitAfterEachPass) {
  constexpr int passes = passes_per_update * updates;
  auto whole = make(1);
  train(*whole, 0, passes);
  for (int stop = 0; stop < passes; ++stop) {
    auto first = make(1);
    train(*first, 0, stop);
    auto second = successor(*first);
    train(*second, stop, passes);
    ASSERT_EQ(testing::save_state(*second), testing::save_state(*whole))
      << "ended after " << stop << " passes";
    EXPECT_EQ(second->position(), whole->position());
  }
}

TEST_P(ResumedTorchLearner, APositionInOtherDataIsRefusedAndChangesNothing) {
  auto model = make(1);
  train(*model, 0, 1);
  auto* resumes = model.get();
  auto before = resumes->position();
  auto other = before;
  other.front() = static_cast<char>(other.front() + 1); // of the fingerprint of the data
  EXPECT_FALSE(resumes->load_position(other));
  EXPECT_FALSE(resumes->load_position(before.substr(1)));
  EXPECT_EQ(resumes->position(), before);
}

TEST_P(ResumedTorchLearner, AGradientOfAnotherKindIsRefusedAndChangesNothing) {
  auto model = make(1);
  auto expected = make(1);
  train(*model, 0, 1);
  auto* resumes = model.get();
  auto partial = resumes->copy_gradient();
  auto fresh = make(1);
  auto* loads = fresh.get();
  auto shorter = partial;
  shorter.sum = std::make_shared<float_vector>(partial.sum->size() - 1);
  EXPECT_FALSE(loads->load_gradient(shorter));
  auto otherwise = partial;
  otherwise.passes =
    partial.passes == 0 ? 1 : 0; // accumulated with, or without, a vector of its own
  EXPECT_FALSE(loads->load_gradient(otherwise));
  auto parameters = partial; // of a learner that has some of its own
  parameters.samples = parameters.passes = 0;
  EXPECT_FALSE(loads->load_gradient(parameters));
  EXPECT_EQ(fresh->accumulated_samples(), 0U);
  train(*fresh, 0, passes_per_update);
  train(*expected, 0, passes_per_update);
  EXPECT_EQ(testing::save_state(*fresh), testing::save_state(*expected));
}

INSTANTIATE_TEST_SUITE_P(
  Each, ResumedTorchLearner,
  ::testing::Values(
    variant{"TwoVectors", [](learner_config&) {}},
    variant{"UnevenBatches", [](learner_config& c) { c.micro_batch = 7; }},
    variant{"OneVector", [](learner_config& c) { c.reuse_gradient_buffers = true; }},
    variant{"ScaledLoss", [](learner_config& c) { c.loss_scale = loss_scale_rule{}; }},
    variant{"ScaledLossInOneVector",
            [](learner_config& c) {
              c.loss_scale = loss_scale_rule{};
              c.reuse_gradient_buffers = true;
            }},
    variant{"Offloaded", [](learner_config& c) { c.offload_optimizer = true; }}),
  [](const auto& info) { return std::string{info.param.name}; });

// A state that an earlier version wrote, of an optimizer whose statistics differ by parameter.
TEST(StoredState, OfAnEarlierVersionLoadsAndIsWrittenAgainWithTheSameBytes) {
  learner_config c;
  c.model = "mlp";
  c.layers = 1;
  c.width = 2;
  c.context = 2;
  c.optimizer = identity_with("muon", {});
  c.optimizer.weight_decay = 0.01;
  c.device = "cpu";
  std::ifstream file{WAGGLE_SOURCE_DIR "/tests/trainer/states/muon.bin", std::ios::binary};
  std::string stored{std::istreambuf_iterator<char>{file}, {}};
  auto bytes = std::as_bytes(std::span{stored});
  auto model = std::move(*make_torch_learner(c));
  auto loaded = testing::load_state(*model, bytes);
  ASSERT_TRUE(loaded) << loaded.error().detail;
  EXPECT_EQ(model->optimizer_steps(), 3U);
  EXPECT_EQ(testing::save_state(*model), (std::vector<std::byte>{bytes.begin(), bytes.end()}));
}

} // namespace
} // namespace waggle
