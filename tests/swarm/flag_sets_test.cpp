// What hivemind's own test asserts for each set of its flags
// (local updates; delayed state, optimizer, gradients; reused buffers), here for one peer, as
// there, and for two and four.

#include <algorithm>
#include <cmath>

#include <gmock/gmock.h>

#include "runtime/training/learner_layer.hpp"
#include "runtime/training/schedule_text.hpp"
#include "tests/swarm/training_swarm.hpp"

namespace waggle::testing {
namespace {

constexpr std::uint64_t target = 32; // of each peer
constexpr std::uint64_t epochs = 3;
constexpr std::uint64_t micro_batch = 4;
constexpr auto step_interval = 300ms;
constexpr double samples_per_second = 4 / 0.3; // of each peer

struct flags {
  const char* name;
  bool local;
  bool delay_state;
  bool delay_steps;
  bool delay_gradients;
  bool reuse;
};

void PrintTo(const flags& f, std::ostream* out) {
  *out << f.name;
}

/// In `collaborative` nothing but gradients is averaged, so the delay of the state has no effect.
constexpr flags sets[] = {
  {"FFFFF", false, false, false, false, false}, {"FTFFF", false, true, false, false, false},
  {"FTTTF", false, true, true, true, false},    {"FFFFT", false, false, false, false, true},
  {"FTTTT", false, true, true, true, true},     {"FTTFT", false, true, true, false, true},
  {"TFFFF", true, false, false, false, false},  {"TTFFF", true, true, false, false, false}};

/// Notes the rate of each step.
class rated_learner final : public learner_layer {
public:
  rated_learner(std::unique_ptr<learner> inner, std::shared_ptr<std::vector<double>> rates)
    : learner_layer(std::move(inner)), rates_(std::move(rates)) {}

  void apply(std::span<const float> gradient, double lr) override {
    rates_->push_back(lr);
    below().apply(gradient, lr);
  }
  void step_locally(double lr) override {
    rates_->push_back(lr);
    below().step_locally(lr);
  }

private:
  std::shared_ptr<std::vector<double>> rates_;
};

class FlagSets : public ::testing::TestWithParam<std::tuple<flags, std::size_t>>,
                 protected trainers {
protected:
  FlagSets() : trainers(41) {}

  void join_one() {
    const auto& [how, peers] = GetParam();
    auto i = rates_.size();
    rates_.push_back(std::make_shared<std::vector<double>>());
    auto config = trainers::endless(i + 1);
    auto& training = config.training->training;
    training.target_batch_size = config.progress.ledger.target_batch_size = target * peers;
    training.max_epochs = epochs;
    training.min_peers = peers;
    training.step_interval = step_interval;
    training.schedule = *make_schedule(*parse_schedule("step:every=1,factor=0.5"), 0.1, 0, epochs);
    training.strategy = how.local ? "local-updates" : "collaborative";
    training.how.delay_state = how.delay_state;
    training.how.delay_gradients = how.delay_gradients;
    training.delay_optimizer_step = how.delay_steps;
    toy_options toy{.parameters = 16, .micro_batch = micro_batch, .data_seed = i + 1};
    toy.momentum = 0;
    toy.in_place = how.reuse;
    config.training->make_learner = [toy,
                                     rates = rates_.back()]() -> result<std::unique_ptr<learner>> {
      return std::unique_ptr<learner>{
        std::make_unique<rated_learner>(make_toy_learner(toy), rates)};
    };
    join(std::move(config));
  }

  std::vector<std::shared_ptr<std::vector<double>>> rates_; // of each peer
};

TEST_P(FlagSets, EndWithTheSamplesAndTheRatesOfThreeEpochs) {
  const auto& [how, peers] = GetParam();
  while (rates_.size() < peers)
    join_one();
  ASSERT_TRUE(sim.run_until([&] { return status_of(0).steps > 0; }, 10s)) << picture(sim);
  auto began = sim.seconds() - seconds_of(step_interval); // before the first pass
  ASSERT_TRUE(sim.run_until([this] { return all_finished(); }, 20s)) << picture(sim);
  auto seconds = sim.seconds() - began;

  std::uint64_t samples = 0;
  for (auto i : sim.living()) {
    SCOPED_TRACE("peer " + std::to_string(i));
    auto s = status_of(i);
    EXPECT_EQ(s.epoch, epoch_id{epochs});
    EXPECT_EQ(s.global_epoch, epoch_id{epochs});
    expect_samples_accounted(s);
    EXPECT_EQ(s.rounds_failed, 0U);
    EXPECT_TRUE(std::isfinite(s.loss));
    samples += s.steps * micro_batch;
    if (!how.local) {
      EXPECT_THAT(*rates_[i], ::testing::ElementsAre(0.1, 0.05, 0.025));
      EXPECT_EQ(s.parameters, status_of(0).parameters);
    } else {
      EXPECT_EQ(rates_[i]->front(), 0.1);
      EXPECT_EQ(rates_[i]->back(), 0.025);
      EXPECT_TRUE(std::is_sorted(rates_[i]->rbegin(), rates_[i]->rend()));
    }
    auto seen = sim.first_event<swarm_progress, subscribe_progress>(sim[i].node.parts.tracker);
    ASSERT_TRUE(seen);
    for (const auto& peer : seen->peers)
      EXPECT_NEAR(peer.samples_per_second, samples_per_second, samples_per_second / 5);
  }
  EXPECT_GE(samples, epochs * target * peers);
  EXPECT_LE(samples, epochs * target * peers * 6 / 5);
  auto expected = samples_per_second * static_cast<double>(peers);
  EXPECT_NEAR(static_cast<double>(samples) / seconds, expected, expected / 5);

  auto ended = [](const caf::strong_actor_ptr& one) {
    return caf::actor_cast<caf::abstract_actor*>(one)->getf(
      caf::abstract_actor::is_terminated_flag);
  };
  for (auto i : sim.living()) {
    auto actors = everybody(sim[i].node.parts);
    EXPECT_TRUE(std::none_of(actors.begin(), actors.end(), ended));
    sim.shut_down(i);
    sim.run_for(1s);
    EXPECT_TRUE(std::all_of(actors.begin(), actors.end(), ended))
      << "an actor of peer " << i << " outlives it";
  }
}

INSTANTIATE_TEST_SUITE_P(Each, FlagSets,
                         ::testing::Combine(::testing::ValuesIn(sets), ::testing::Values(1, 2, 4)),
                         [](const auto& info) {
                           return std::string{std::get<flags>(info.param).name} + "Of"
                                  + std::to_string(std::get<std::size_t>(info.param));
                         });

} // namespace
} // namespace waggle::testing
