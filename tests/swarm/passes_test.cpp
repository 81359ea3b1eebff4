// Swarms whose data has samples: whoever joins, dies, freezes or is cut off, each sample of a pass
// enters one update, and the run ends after its passes.

#include <cmath>
#include <numeric>

#include "runtime/core/check.hpp"
#include "runtime/training/layers.hpp"
#include "runtime/training/learner_layer.hpp"
#include "runtime/training/sample_draws.hpp"
#include "tests/support/seeds.hpp"
#include "tests/swarm/training_swarm.hpp"

namespace waggle::testing {
namespace {

constexpr std::uint64_t passes = 3;
constexpr const char* strategies[]{
  "collaborative", "data-parallel", "diloco:steps=5,outer-rate=0,outer-momentum=0",
  "diloco:steps=7,overlap=3,outer-rate=0,outer-momentum=0",
  "daso:epochs=1000,batches=8,warmup=2,cooldown=1,max-skips=4,stability=0.5"};

/// @param counts how often each sample has entered an update, by what the updates had.
void expect_once_a_pass(const sample_ledger& ledger, const float_vector& counts) {
  auto sum = std::accumulate(counts.begin(), counts.end(), 0.0);
  auto [least, most] = std::minmax_element(counts.begin(), counts.end());
  auto done = static_cast<double>(ledger.passes());
  EXPECT_EQ(sum,
            done * static_cast<double>(counts.size()) + static_cast<double>(ledger.present().once));
  EXPECT_EQ(ledger.present().twice, 0U);
  EXPECT_GE(*least, done) << "never";
  EXPECT_LE(*most, done + 1) << "twice";
}

void add_mean(float_vector& counts, std::span<const float> mean, double weight) {
  for (std::size_t i = 0; i < mean.size(); ++i)
    counts[i] += std::round(mean[i] * static_cast<float>(weight));
}

/// Its parameters are the truth: how often each sample has entered an update.
class counting_learner final : public learner {
public:
  counting_learner(std::shared_ptr<sample_draws> draws, std::uint64_t micro_batch,
                   std::uint64_t seed)
    : draws_(std::move(draws)), micro_batch_(micro_batch), random_(seed),
      counts_(draws_->ledger().samples()), sums_(counts_.size()),
      tensors_({{"seen", {counts_.size()}, state_tensor::kind::parameter}}) {}

  micro_step accumulate() override {
    auto samples = draws_->draw(micro_batch_);
    micro_step step{1, samples.size()};
    WAGGLE_CHECK(step.samples > 0, "a pass without samples");
    step.finite = random_.below(50) != 0;
    for (auto i : samples)
      sums_[i] += step.finite ? 1.0F : 0.0F;
    samples_ += step.finite ? step.samples : 0;
    return step;
  }
  mean_gradient take_mean_vector(vector_pool& vectors, std::size_t room) override {
    auto out = vectors.take(sums_.size() + room);
    for (std::size_t i = 0; i < sums_.size(); ++i)
      (*out)[i] = samples_ == 0 ? 0 : sums_[i] / static_cast<float>(samples_);
    return {std::move(out), drop_gradient()};
  }
  std::uint64_t drop_gradient() override {
    std::fill(sums_.begin(), sums_.end(), 0.0F);
    return std::exchange(samples_, 0);
  }
  [[nodiscard]] std::uint64_t accumulated_samples() const override { return samples_; }
  void apply(std::span<const float> gradient, double /*lr*/) override {
    mean_.assign(gradient.begin(), gradient.end());
  }
  void end_epoch(const decided_round& by) override {
    add_mean(counts_, mean_, by.weight);
    mean_.clear();
    expect_once_a_pass(draws_->ledger(), counts_);
  }
  void read_tensor(std::size_t, std::span<float> out) const override {
    std::copy(counts_.begin(), counts_.end(), out.begin());
  }
  void write_tensor(std::size_t, std::span<const float> values) override {
    std::copy(values.begin(), values.end(), counts_.begin());
  }
  [[nodiscard]] std::uint64_t optimizer_steps() const override { return 0; }
  void set_optimizer_steps(std::uint64_t) override {}
  [[nodiscard]] const state_table& tensors() const override { return tensors_; }
  [[nodiscard]] digest schema() const override { return sha256("counting"); }

private:
  std::shared_ptr<sample_draws> draws_;
  std::uint64_t micro_batch_;
  random_source random_;
  float_vector counts_;
  float_vector sums_;
  std::uint64_t samples_ = 0;
  std::vector<float> mean_;
  state_table tensors_;
};

/// Steps locally. Its parameters are the samples in them, as long as the run's anchor stays 0.
class stepping_learner final : public learner {
public:
  stepping_learner(std::shared_ptr<sample_draws> draws, std::uint64_t micro_batch,
                   std::uint64_t seed)
    : draws_(std::move(draws)), micro_batch_(micro_batch), random_(seed),
      entered_(draws_->ledger().samples()),
      tensors_({{"entered", {entered_.size()}, state_tensor::kind::parameter}}) {}

  [[nodiscard]] learner_abilities abilities() const override {
    return {.steps_locally = true, .copies_during_passes = true};
  }
  micro_step accumulate() override {
    pass_ = draws_->draw(micro_batch_);
    micro_step step{1, pass_.size()};
    WAGGLE_CHECK(step.samples > 0, "a pass without samples");
    step.finite = random_.below(50) != 0;
    if (!step.finite)
      pass_.clear();
    return step;
  }
  void step_locally(double /*lr*/) override {
    std::lock_guard lock{values_};
    for (auto i : std::exchange(pass_, {}))
      ++entered_[i];
    ++changes_;
  }
  [[nodiscard]] std::uint64_t accumulated_samples() const override { return pass_.size(); }
  mean_gradient take_mean_vector(vector_pool& vectors, std::size_t room) override {
    return {vectors.take(entered_.size() + room), drop_gradient()};
  }
  std::uint64_t drop_gradient() override { return std::exchange(pass_, {}).size(); }
  void apply(std::span<const float>, double) override {}
  void read_tensor(std::size_t, std::span<float> out) const override {
    std::copy(entered_.begin(), entered_.end(), out.begin());
  }
  void write_tensor(std::size_t, std::span<const float> values) override {
    std::copy(values.begin(), values.end(), entered_.begin());
  }
  [[nodiscard]] std::uint64_t optimizer_steps() const override { return 0; }
  void set_optimizer_steps(std::uint64_t) override {}
  [[nodiscard]] const state_table& tensors() const override { return tensors_; }
  [[nodiscard]] digest schema() const override { return sha256("stepping"); }

private:
  std::shared_ptr<sample_draws> draws_;
  std::uint64_t micro_batch_;
  random_source random_;
  float_vector entered_;
  std::vector<std::uint64_t> pass_;
  state_table tensors_;
};

/// Above an anchor that stays 0: counts the samples in the progress of all that the rounds
/// averaged.
class progress_counter final : public learner_layer {
public:
  progress_counter(std::unique_ptr<learner> below, std::shared_ptr<sample_draws> draws)
    : learner_layer(std::move(below),
                    {kept_tensor({"count/all", {draws->ledger().samples()}, kind::outer},
                                 [this] { return std::span{counts_}; }),
                     kept_tensor({"count/mean", {draws->ledger().samples()}, kind::metric},
                                 [this] { return std::span{mean_}; })}),
      draws_(std::move(draws)), counts_(draws_->ledger().samples()), mean_(counts_.size()) {}

  mean_gradient take_mean_vector(vector_pool& vectors, std::size_t room) override {
    auto mean = below().take_mean_vector(vectors, room + counts_.size());
    auto values = std::span{*mean.values};
    for (std::size_t i = 0; i < counts_.size(); ++i)
      values[gradient_count() - counts_.size() + i] =
        mean.samples == 0 ? 0 : -values[i] / static_cast<float>(mean.samples);
    return mean;
  }
  void take_metrics(std::span<const float> means, epoch_id /*epoch*/) override {
    std::ranges::copy(means.last(mean_.size()), mean_.begin());
    taken_ = true;
  }
  void end_epoch(const decided_round& by) override {
    if (std::exchange(taken_, false))
      add_mean(counts_, mean_, by.weight);
    expect_once_a_pass(draws_->ledger(), counts_);
    below().end_epoch(by);
  }

private:
  using kind = state_tensor::kind;
  std::shared_ptr<sample_draws> draws_;
  float_vector counts_, mean_;
  bool taken_ = false;
};

struct passes_swarm {
  explicit passes_swarm(std::uint64_t run_seed, std::uint64_t count)
    : seed(run_seed), samples(count), sim(run_seed, {.loss = 0.01}) {}

  index start(const std::vector<index>& through, std::uint64_t micro_batch) {
    auto config = trainers::endless(sim.size() + 1);
    auto& training = config.training->training;
    training.max_passes = passes;
    training.strategy = strategy;
    training.min_peers = min_peers;
    if (through.empty())
      training.join_timeout = 0ms;
    auto self = std::make_shared<peer_id>();
    config.training->make_learner = [this, self, micro_batch] {
      auto draws = std::make_shared<sample_draws>(*self, samples, "sim");
      auto data_seed = seed + sim.size();
      strategy_choice how = strategy;
      if (!how->steps_each_pass())
        return with_ledger(make_with<counting_learner>(draws, micro_batch, data_seed), draws)();
      auto steps = how.learners(make_with<stepping_learner>(draws, micro_batch, data_seed));
      if (how->name == "diloco")
        steps = layered<progress_counter>(steps, "", draws);
      return with_ledger(steps, draws, true)();
    };
    auto who = sim.size();
    *self = identity::from_seed(seed * 1000 + who + 1)->id(); // as simulation::start makes it
    return sim.start(std::move(config), through);
  }
  template <class Learner, class... Given>
  static learner_factory make_with(const Given&... given) {
    return [=]() -> result<std::unique_ptr<learner>> {
      return std::unique_ptr<learner>{std::make_unique<Learner>(given...)};
    };
  }
  std::optional<training_status> status_of(index i) {
    return sim.ask<training_status>(sim[i].node.parts.trainer, get_training_status{});
  }
  bool all_finished() {
    auto peers = sim.living();
    return std::all_of(peers.begin(), peers.end(), [&](index i) {
      auto s = status_of(i);
      return s && s->phase == trainer_phase::finished
             && s->epoch == status_of(peers.front())->epoch;
    });
  }
  /// The learner's part of a state, with parameters and ledger.
  std::string image_of(index i) {
    auto state = sim.ask<state_snapshot>(sim[i].node.parts.trainer, get_state_snapshot{});
    if (!state)
      return {};
    auto bytes = read_all(*state->state);
    return bytes ? std::string{as_string_view(bytes->view()).substr(state_header_bytes)}
                 : std::string{};
  }
  void expect_each_sample_once_a_pass() {
    std::optional<std::string> image;
    for (auto i : sim.living()) {
      SCOPED_TRACE("peer " + std::to_string(i));
      auto own = image_of(i);
      ASSERT_FALSE(own.empty());
      EXPECT_EQ(image.value_or(own), own) << "another ledger, or other parameters";
      image = own;
      auto s = status_of(i);
      ASSERT_TRUE(s);
      EXPECT_EQ(s->samples_toward_epoch, 0U);
      for (std::size_t pass = 0; pass + 1 < s->passes.size(); ++pass)
        EXPECT_EQ(std::pair(s->passes[pass].never, s->passes[pass].twice), std::pair(0UL, 0UL))
          << "only the last one is not complete";
    }
    expect_rounds_kept_the_contract(sim);
  }

  std::uint64_t seed;
  std::uint64_t samples;
  std::uint64_t min_peers = 1;
  std::string strategy = "collaborative";
  simulation sim;
};

TEST(Passes, APeerAloneSeesEachSampleOnceAPass) {
  for (std::uint64_t samples : {1U, 7U, 100U, 999U}) {
    SCOPED_TRACE(samples);
    passes_swarm swarm{1, samples};
    swarm.start({}, 4);
    ASSERT_TRUE(swarm.sim.run_until([&] { return swarm.all_finished(); }, 600s))
      << picture(swarm.sim);
    swarm.expect_each_sample_once_a_pass();
  }
}

TEST(Passes, PeersShareAPassAndEndTogether) {
  for (const char* strategy : strategies) {
    SCOPED_TRACE(strategy);
    passes_swarm swarm{2, 1'500};
    swarm.strategy = strategy;
    swarm.start({}, 4);
    swarm.start({0}, 3);
    swarm.start({0}, 8);
    ASSERT_TRUE(swarm.sim.run_until([&] { return swarm.all_finished(); }, 120s))
      << picture(swarm.sim);
    swarm.expect_each_sample_once_a_pass();
    for (index i = 0; i < 3; ++i)
      EXPECT_GT(swarm.status_of(i)->samples_used, 600U);
  }
}

TEST(Passes, NoRoundBeginsTheRunBeforeThereAreEnoughPeers) {
  passes_swarm swarm{3, 200};
  swarm.min_peers = 2;
  swarm.start({}, 4);
  swarm.sim.run_for(5s);
  EXPECT_EQ(swarm.status_of(0)->epoch, epoch_id{});
  EXPECT_EQ(swarm.status_of(0)->steps, 0U);
  swarm.start({0}, 4);
  ASSERT_TRUE(swarm.sim.run_until([&] { return swarm.all_finished(); }, 120s))
    << picture(swarm.sim);
  swarm.expect_each_sample_once_a_pass();
}

/// Peers are killed, join, are frozen and go on, and the network splits and heals, at moments of
/// the seed.
void run_churn(std::uint64_t seed, const std::string& strategy) {
  SCOPED_TRACE(strategy + ", seed " + std::to_string(seed));
  random_source random{seed};
  passes_swarm swarm{seed, 1'000 + random.below(1'500)};
  swarm.strategy = strategy;
  auto& sim = swarm.sim;
  swarm.start({}, 4);
  for (index n = 1; n < 5; ++n) {
    sim.run_for(milliseconds{random.below(300)});
    swarm.start({0}, 2 + random.below(6));
  }
  auto one_of = [&] {
    auto alive = sim.living();
    return alive[random.below(alive.size())];
  };
  for (int fault = 0; fault < 5; ++fault) {
    sim.run_for(500ms + milliseconds{random.below(3'000)});
    switch (random.below(4)) {
      case 0:
        if (sim.living().size() > 2)
          sim.crash(one_of(), random.below(2) == 0);
        break;
      case 1:
        swarm.start({one_of()}, 1 + random.below(8));
        break;
      case 2: {
        auto alive = sim.living();
        random.shuffle(alive);
        sim.network().partition({alive.begin(), alive.begin() + 1 + random.below(2)});
        sim.run_for(500ms + milliseconds{random.below(5'000)});
        sim.network().heal();
        break;
      }
      case 3: {
        auto frozen = one_of();
        sim.freeze(frozen);
        sim.run_for(1s + milliseconds{random.below(5'000)});
        sim.thaw(frozen);
        break;
      }
    }
  }
  ASSERT_TRUE(sim.run_until([&] { return swarm.all_finished(); }, 600s)) << picture(sim);
  swarm.expect_each_sample_once_a_pass();
}

TEST(Passes, EachSampleEntersOneUpdateAPassWhateverHappens) {
  auto first = number_in("WAGGLE_TEST_FIRST_SEED", 1);
  auto end = first + number_in("WAGGLE_TEST_SEEDS", 3);
  for (auto seed = first; seed < end && !HasFailure(); ++seed)
    for (const char* strategy : strategies)
      run_churn(seed, strategy);
}

} // namespace
} // namespace waggle::testing
