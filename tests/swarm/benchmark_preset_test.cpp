// The preset of hivemind's benchmark of its optimizer: eight peers of
// unequal speed, three of them clients, with delayed gradients and steps in reused buffers.

#include <algorithm>
#include <numeric>

#include "runtime/training/learner_layer.hpp"
#include "runtime/training/schedule_text.hpp"
#include "tests/swarm/training_swarm.hpp"

namespace waggle::testing {
namespace {

constexpr std::size_t all_peers = 8;
constexpr std::size_t clients = 3;
constexpr std::uint64_t target = 256;
constexpr std::uint64_t epochs = 25;
constexpr std::uint64_t largest_batch = 16;
constexpr double time_deviation = 0.5; // seconds
constexpr auto tick = 100ms;
constexpr std::size_t parameters = 64;

struct speed {
  std::uint64_t micro_batch;
  double seconds; // mean time of a pass
  [[nodiscard]] double samples_per_second() const {
    return static_cast<double>(micro_batch) / seconds;
  }
};

/// What a test observes of one peer's learner.
struct observed_learner {
  learner* model = nullptr;
  std::uint64_t passes = 0;
  std::map<std::uint64_t, double> rates; // by the number of updates before
};

/// Its passes take a random time. The trainer asks for one at every tick, and gets an empty one
/// until the time has passed, because virtual time stands still within a pass.
class paced_learner final : public learner_layer {
public:
  paced_learner(std::unique_ptr<learner> inner, speed how, std::uint64_t seed,
                std::function<double()> seconds, std::shared_ptr<observed_learner> observed)
    : learner_layer(std::move(inner)), how_(how), random_(seed), seconds_(std::move(seconds)),
      observed_(std::move(observed)) {
    observed_->model = &this->below();
  }

  micro_step accumulate() override {
    if (seconds_() < due_)
      return {last_loss_, 0, true};
    due_ = seconds_() + time_of_pass();
    ++observed_->passes;
    auto step = below().accumulate();
    last_loss_ = step.loss;
    return step;
  }
  void apply(std::span<const float> gradient, double lr) override {
    observed_->rates[optimizer_steps()] = lr;
    below().apply(gradient, lr);
  }
  void step_locally(double) override { ADD_FAILURE() << "the strategy averages gradients"; }

private:
  /// Approximately normal.
  double time_of_pass() {
    double sum = -6;
    for (int i = 0; i < 12; ++i)
      sum += random_.unit();
    return std::max(0.0, how_.seconds + time_deviation * sum);
  }

  const speed how_;
  random_source random_;
  const std::function<double()> seconds_;
  const std::shared_ptr<observed_learner> observed_;
  double due_ = 0;
  double last_loss_ = 0;
};

class BenchmarkPreset : public ::testing::TestWithParam<std::uint64_t>, protected trainers {
protected:
  BenchmarkPreset() : trainers(GetParam()), random_(GetParam()) {}

  static lr_schedule schedule() {
    return *make_schedule(*parse_schedule("step:every=10,factor=0.1"), 0.1, 0, epochs);
  }

  void join_one() {
    auto i = speeds_.size();
    bool client = i >= all_peers - clients;
    speeds_.push_back({2 + random_.below(largest_batch - 1), 1 + 3.5 * random_.unit()});
    learners_.push_back(std::make_shared<observed_learner>());
    auto config = trainers::endless(i + 1);
    config.client_mode = client;
    config.averaging->matchmaking.mode = client ? member_mode::client : member_mode::node;
    config.averaging->averaging.round.stall_timeout = 5s;
    config.progress.ledger.target_batch_size = target;
    config.progress.ledger.refresh_max = 5s;
    auto& training = config.training->training;
    training.target_batch_size = target;
    training.max_epochs = epochs;
    training.schedule = schedule();
    training.averaging_timeout = 15s;
    training.how.delay_gradients = true;
    training.delay_optimizer_step = true;
    training.step_interval = tick;
    toy_options toy{
      .parameters = parameters, .micro_batch = speeds_[i].micro_batch, .data_seed = i + 1};
    toy.momentum = 0;
    toy.in_place = true;
    config.training->make_learner = [this, i, toy]() -> result<std::unique_ptr<learner>> {
      return std::unique_ptr<learner>{std::make_unique<paced_learner>(
        make_toy_learner(toy), speeds_[i], GetParam() * 100 + i, [this] { return sim.seconds(); },
        learners_[i])};
    };
    join(std::move(config));
  }

  [[nodiscard]] double samples_per_second() const {
    return std::accumulate(speeds_.begin(), speeds_.end(), 0.0,
                           [](double sum, const speed& s) { return sum + s.samples_per_second(); });
  }
  /// Of one pass of each peer.
  [[nodiscard]] std::uint64_t samples_of_a_pass() const {
    return std::accumulate(speeds_.begin(), speeds_.end(), std::uint64_t{0},
                           [](auto sum, const speed& s) { return sum + s.micro_batch; });
  }
  /// Seconds of the longest epoch that this throughput allows: a pass of each peer may have begun
  /// just before it. A tenth more, because passes take a random time.
  [[nodiscard]] double longest_epoch() const {
    return 1.1 * static_cast<double>(target + samples_of_a_pass()) / samples_per_second();
  }
  /// Seconds of each epoch of the first peer.
  std::vector<double> run_to_the_end() {
    std::vector<double> lengths;
    auto began = sim.seconds();
    while (lengths.size() < epochs && sim.seconds() < epochs * longest_epoch()) {
      sim.run_for(tick);
      while (lengths.size() < sim[0].rounds.size()) {
        lengths.push_back(sim.seconds() - began);
        began = sim.seconds();
      }
    }
    return lengths;
  }
  /// Of these weights, for samples that no peer has drawn.
  static double loss_of(const learner& model) {
    std::vector<float> weights(parameters);
    model.read_tensor(0, weights);
    auto judge = make_toy_learner({.parameters = parameters, .micro_batch = 4096, .data_seed = 77});
    judge->write_tensor(0, weights);
    return judge->accumulate().loss;
  }

  random_source random_;
  std::vector<speed> speeds_;
  std::vector<std::shared_ptr<observed_learner>> learners_;
};

TEST_P(BenchmarkPreset, AllPeersEndAtTheLastEpochWithEqualParameters) {
  while (speeds_.size() < all_peers)
    join_one();
  auto lengths = run_to_the_end();
  ASSERT_EQ(lengths.size(), epochs) << picture(sim);
  ASSERT_TRUE(sim.run_until([this] { return all_finished(); }, 5s)) << picture(sim);

  auto ideal = target / samples_per_second();
  auto mean = std::accumulate(lengths.begin(), lengths.end(), 0.0) / epochs;
  EXPECT_NEAR(mean, ideal, 0.1 * ideal);
  for (auto length : lengths)
    EXPECT_LT(length, longest_epoch()) << "where " << ideal << " s are ideal";

  // Every round is that of all peers, and has the samples of one epoch.
  expect_rounds_kept_the_contract(sim);
  double contributed = 0;
  ASSERT_EQ(sim[0].rounds.size(), epochs);
  for (const auto& round : sim[0].rounds) {
    EXPECT_EQ(round.outcome, round_outcome::complete);
    EXPECT_EQ(round.contributors.size(), all_peers);
    EXPECT_GE(round.weight_sum, target);
    EXPECT_LE(round.weight_sum, target + samples_of_a_pass());
    contributed += round.weight_sum;
  }

  std::uint64_t used = 0;
  std::vector<float> weights(parameters);
  learners_[0]->model->read_tensor(0, weights);
  for (auto i : sim.living()) {
    SCOPED_TRACE("peer " + std::to_string(i));
    auto s = status_of(i);
    EXPECT_EQ(s.epoch, epoch_id{epochs});
    EXPECT_EQ(s.rounds_complete, epochs);
    EXPECT_EQ(s.samples_used + s.samples_dropped + s.samples_toward_epoch,
              learners_[i]->passes * speeds_[i].micro_batch);
    EXPECT_GT(s.samples_used, 0U);
    used += s.samples_used;
    EXPECT_FALSE(s.parameters.is_zero());
    EXPECT_EQ(s.parameters, status_of(0).parameters);
    std::vector<float> own(parameters);
    learners_[i]->model->read_tensor(0, own);
    EXPECT_EQ(own, weights);
    EXPECT_EQ(learners_[i]->rates.size(), epochs);
    for (auto [update, rate] : learners_[i]->rates)
      EXPECT_EQ(rate, schedule().at(epoch_id{update})) << "update " << update;
  }
  EXPECT_EQ(used, contributed);
  EXPECT_EQ(learners_[0]->rates[9], 0.1);
  EXPECT_DOUBLE_EQ(learners_[0]->rates[24], 0.001);

  auto untrained = make_toy_learner({.parameters = parameters});
  EXPECT_LT(loss_of(*learners_[0]->model), 0.6 * loss_of(*untrained));
}

INSTANTIATE_TEST_SUITE_P(Seeds, BenchmarkPreset, ::testing::Range<std::uint64_t>(1, 5));

} // namespace
} // namespace waggle::testing
