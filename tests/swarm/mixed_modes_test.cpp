// Every strategy among peers of different kinds, with a lossy codec: two trainers, a client that
// only dials, an auxiliary that only reduces.

#include "runtime/codec/half.hpp"
#include "runtime/training/layers.hpp"
#include "runtime/training/learner_layer.hpp"
#include "tests/swarm/training_swarm.hpp"

namespace waggle::testing {
namespace {

struct mixed_mode {
  const char* name;
  void (*set)(training_config& config);
  codec_choice codec = codec_id::none;
  bool equal_parameters = false; // of all peers of an epoch
  toy_options toy = {.parameters = 64, .micro_batch = 4};
};

void PrintTo(const mixed_mode& m, std::ostream* out) {
  *out << m.name;
}

/// Steps with single micro-batches need a smaller rate.
void local(training_config& c, const char* strategy) {
  c.strategy = strategy;
  c.schedule.peak = 0.005;
  c.how.steps_period = 4;
  c.how.statistics = {"momentum_buffer"};
}

/// Parameters, squares and buffers, each with a codec of its own.
const mixed_mode codecs_by_role{
  "CodecsByRole",
  [](training_config& c) {
    local(c, "decentralized-adam");
    c.how.statistics = {"exp_avg_sq"};
  },
  *parse_codec_choice("role:parameter=float16,optimizer=blockwise8,buffer=scaled_float16"),
  false,
  {.parameters = 64, .micro_batch = 4, .buffer = true, .adam = true}};

const mixed_mode mixed_modes[] = {
  {"Collaborative", [](training_config&) {}, codec_id::uniform8, true},
  {"DelayedGradients", [](training_config& c) { c.how.delay_gradients = true; }, codec_id::float16,
   true},
  {"DelayedSteps", [](training_config& c) { c.delay_optimizer_step = true; }, codec_id::none, true},
  {"DelayedGradientsAndSteps",
   [](training_config& c) {
     c.how.delay_gradients = true;
     c.delay_optimizer_step = true;
   },
   codec_id::uniform8, true},
  {"LowRank",
   [](training_config& c) {
     c.how.coding = {2, 0.4};
   },
   codec_id::float16,
   true,
   {.parameters = 64, .micro_batch = 4, .rows = 8}},
  {"ReusedBuffers",
   [](training_config&) {},
   codec_id::uniform8,
   true,
   {.parameters = 64, .micro_batch = 4, .in_place = true}},
  {"DelayedStepsInReusedBuffers",
   [](training_config& c) { c.delay_optimizer_step = true; },
   codec_id::uniform8,
   true,
   {.parameters = 64, .micro_batch = 4, .in_place = true}},
  {"LocalUpdates", [](training_config& c) { local(c, "local-updates"); }, codec_id::uniform8},
  {"LocalUpdatesOfThreeEpochs",
   [](training_config& c) {
     local(c, "local-updates");
     c.how.epochs_per_round = 3;
     c.target_batch_size = 96;
   },
   codec_id::float16},
  {"BlockingLocalUpdates",
   [](training_config& c) {
     local(c, "local-updates");
     c.how.delay_state = false;
   },
   codec_id::float16},
  {"DecentralizedSgd", [](training_config& c) { local(c, "decentralized-sgd"); },
   codec_id::blockwise8},
  {"StepsInEpochs",
   [](training_config& c) {
     local(c, "decentralized-sgd");
     c.how.steps_in_epoch = 40;
   },
   codec_id::uniform8},
  {"AveragedGradients",
   [](training_config& c) {
     local(c, "decentralized-sgd");
     c.how.average_gradients = true;
   },
   codec_id::float16},
  {"TimeGrid",
   [](training_config& c) {
     local(c, "decentralized-sgd");
     c.how.steps_period = 1;
     c.how.time_period = 400ms;
   },
   codec_id::scaled_float16},
  {"Moshpit",
   [](training_config& c) {
     local(c, "decentralized-sgd");
     c.many_groups = true;
   },
   codec_id::blockwise8},
  codecs_by_role,
};

/// A simulated pass takes no time, so that nothing is copied in the middle of one, buffers
/// included.
class simulated_learner final : public learner_layer {
public:
  using learner_layer::learner_layer;

  [[nodiscard]] bool copies_during_passes() const override { return true; }
};

/// Adds peers that train in a mode.
struct mixed_trainers : trainers {
  using trainers::trainers;

  index join(const mixed_mode& mode, const std::vector<index>& through,
             member_mode kind = member_mode::node) {
    auto toy = mode.toy;
    toy.data_seed = sim.size() + 1;
    auto config = endless(toy.data_seed);
    auto& training = config.training->training;
    mode.set(training);
    config.averaging->averaging.codec = mode.codec;
    auto& groups = config.averaging->matchmaking;
    groups.mode = kind;
    if (mode.toy.parameters > 64) // for a codebook, which is not sent with a short part
      groups.parts.largest = 1024;
    config.client_mode = kind == member_mode::client;
    training.auxiliary = kind == member_mode::auxiliary;
    config.averaging->averaging.auxiliary = training.auxiliary;
    if (training.many_groups) {
      groups.target_group_size = 3; // in pairs of three peers, one is always left over
      groups.elastic_bits = true;
      groups.min_matchmaking_time = 400ms;
      groups.request_timeout = 300ms;
    }
    learners_.push_back(std::make_shared<learner*>(nullptr));
    config.training->make_learner = with_averaged_gradients(
      [toy, slot = learners_.back()]() -> result<std::unique_ptr<learner>> {
        auto made = make_toy_learner(toy);
        *slot = made.get();
        return std::unique_ptr<learner>{std::make_unique<simulated_learner>(std::move(made))};
      },
      training.how.average_gradients);
    return add(std::move(config), through);
  }
  /// REQUIRES: `who` lives.
  learner& learner_of(index who) const { return **learners_[who]; }

private:
  std::vector<std::shared_ptr<learner*>> learners_;
};

class MixedModes : public ::testing::TestWithParam<mixed_mode>, protected mixed_trainers {
protected:
  MixedModes() : mixed_trainers(23) {}
};

TEST_P(MixedModes, TrainTogether) {
  const auto& mode = GetParam();
  auto first = join(mode, {});
  auto second = join(mode, {first});
  auto client = join(mode, {first}, member_mode::client);
  std::vector<index> train{first, second, client};
  auto fourth = join(mode, {first}, member_mode::auxiliary);
  ASSERT_TRUE(sim.run_until([&] { return together(train, 4); }, 20s)) << picture(sim);
  auto before = status_of(first).epoch.value();
  sim.run_for(15s);
  EXPECT_TRUE(together(train, 4)) << picture(sim);
  EXPECT_GT(status_of(first).epoch.value(), before + 15);
  sim.crash(second, false);
  std::erase(train, second);
  EXPECT_TRUE(sim.run_until([&] { return together(train, 3); }, 10s)) << picture(sim);
  sim.run_for(10s);

  expect_rounds_kept_the_contract(sim, true);
  for (auto i : train) {
    auto s = status_of(i);
    expect_samples_accounted(s);
    EXPECT_GT(s.samples_used, 0U);
    EXPECT_LT(s.loss, 0.7 * s.first_loss) << picture(sim);
    EXPECT_GT(s.rounds_complete + s.rounds_shrunk, 15U) << picture(sim);
  }
  training_config config;
  mode.set(config);
  if (config.how.average_gradients) { // beside the parameters and their statistic
    for (const auto& report : sim[first].rounds)
      if (report.outcome == round_outcome::complete) {
        EXPECT_EQ(report.values->size(), 3 * mode.toy.parameters);
      }
  }
  auto helps = status_of(fourth);
  EXPECT_EQ(helps.steps, 0U);
  EXPECT_GT(helps.rounds_complete + helps.rounds_shrunk, 15U);
  if (!mode.equal_parameters)
    return;
  auto equal = [&] {
    auto a = status_of(first);
    auto b = status_of(client);
    return a.epoch == b.epoch && !a.parameters.is_zero() && !b.parameters.is_zero();
  };
  ASSERT_TRUE(sim.run_until(equal, 5s)) << picture(sim);
  EXPECT_EQ(status_of(first).parameters, status_of(client).parameters);
}

INSTANTIATE_TEST_SUITE_P(Strategies, MixedModes, ::testing::ValuesIn(mixed_modes),
                         [](const auto& info) { return std::string{info.param.name}; });

// The vector of a round is parameters, squares and a buffer, of 1024 values each.
class CodecsByRole : public ::testing::Test, protected mixed_trainers {
protected:
  CodecsByRole() : mixed_trainers(29) {}

  static bool are_halves(std::span<const float> values) {
    return std::all_of(values.begin(), values.end(),
                       [](float v) { return codecs::from_half(codecs::to_half(v)) == v; });
  }
};

TEST_F(CodecsByRole, RoundsAgreeAndSquaresAreNeverNegative) {
  auto mode = codecs_by_role;
  mode.codec = *parse_codec_choice("role:parameter=float16,optimizer=uniform8,buffer=blockwise8");
  mode.toy.parameters = 1024;
  for (int n = 0; n < 3; ++n)
    join(mode, n == 0 ? std::vector<index>{} : std::vector<index>{0});
  ASSERT_TRUE(sim.run_until([&] { return together(); }, 20s)) << picture(sim);
  // One value is so large that all others are in one cell of the codec.
  random_source random{1};
  for (auto i : sim.living()) {
    std::vector<float> squares(1024);
    for (auto& x : squares)
      x = static_cast<float>(i == 0 ? 0.1 * random.unit() : 0);
    squares[random.below(squares.size())] = 100;
    learner_of(i).write_tensor(2, squares);
  }
  double largest = 0;
  for (int look = 0; look < 100; ++look) {
    sim.run_for(100ms);
    for (auto i : sim.living()) {
      std::vector<float> squares(1024);
      learner_of(i).read_tensor(2, squares);
      auto [least, most] = std::minmax_element(squares.begin(), squares.end());
      ASSERT_GE(*least, 0.0F) << "of peer " << i << " after " << sim.seconds() << " s";
      largest = std::max<double>(largest, *most);
    }
  }
  EXPECT_GT(largest, 0);
  expect_rounds_kept_the_contract(sim);
  std::size_t rounds = 0;
  for (auto i : sim.living())
    for (const auto& report : sim[i].rounds) {
      if (report.outcome != round_outcome::complete || report.group_size < 2)
        continue;
      ++rounds;
      std::span<const float> values{*report.values};
      ASSERT_EQ(values.size(), 3U * 1024);
      EXPECT_TRUE(are_halves(values.first(1024)));
      EXPECT_FALSE(are_halves(values.subspan(1024, 1024)));
      EXPECT_FALSE(are_halves(values.last(1024)));
    }
  EXPECT_GT(rounds, 3U * 15);
}

class WithAnAuxiliary : public ::testing::Test, protected trainers {
protected:
  WithAnAuxiliary() : trainers(31) {}
};

TEST_F(WithAnAuxiliary, RoundsInWhichAllOthersTookPartAreNoReasonToWarn) {
  add(endless(1), {});
  add(endless(2), {0});
  auto reduces = endless(3);
  reduces.training->training.auxiliary = reduces.averaging->averaging.auxiliary = true;
  reduces.averaging->matchmaking.mode = member_mode::auxiliary;
  add(reduces, {0});
  ASSERT_TRUE(sim.run_until([&] { return together({0, 1}, 3); }, 10s)) << picture(sim);
  sim.run_for(20s);
  for (auto i : sim.living()) {
    EXPECT_EQ(text_of(status_of(i).notices), "") << "peer " << i;
    auto seen = sim.first_event<swarm_progress, subscribe_progress>(sim[i].node.parts.tracker);
    ASSERT_TRUE(seen);
    EXPECT_EQ(seen->num_peers, 2U) << "that train";
    EXPECT_EQ(seen->num_auxiliaries, 1U);
  }
}

} // namespace
} // namespace waggle::testing
