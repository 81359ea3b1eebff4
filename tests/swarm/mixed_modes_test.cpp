// Every strategy among peers of different kinds, with a lossy codec: two trainers, a client that
// only dials, an auxiliary that only reduces.

#include "runtime/codec/half.hpp"
#include "runtime/training/learner_layer.hpp"
#include "tests/swarm/modes.hpp"

namespace waggle::testing {
namespace {

/// Parameters, squares and buffers, each with a codec of its own.
const mode codecs_by_role{
  "CodecsByRole",
  [](auto& c) {
    local(c, "decentralized-adam");
    c.how.steps_period = 4;
    c.how.statistics = {"exp_avg_sq"};
  },
  false, *parse_codec_choice("role:parameter=float16,optimizer=blockwise8,buffer=scaled_float16"),
  toy_options{.parameters = 64, .micro_batch = 4, .buffer = true, .adam = true}};

std::vector<mode> mixed_modes() {
  std::vector<mode> some{codecs_by_role};
  std::copy_if(std::begin(modes), std::end(modes), std::back_inserter(some),
               [](const mode& m) { return m.mixed.has_value(); });
  return some;
}

/// A simulated pass takes no time, so that nothing is copied in the middle of one, buffers
/// included.
class simulated_learner final : public learner_layer {
public:
  using learner_layer::learner_layer;

  [[nodiscard]] learner_abilities abilities() const override {
    auto can = below().abilities();
    can.copies_during_passes = true;
    return can;
  }
};

/// Adds peers that train in a mode.
struct mixed_trainers : trainers {
  using trainers::trainers;

  index join(const mode& how, const std::vector<index>& through,
             member_mode kind = member_mode::node) {
    learners_.push_back(std::make_shared<learner*>(nullptr));
    auto config = with_mode(how, sim.size() + 1, 0, nullptr, learners_.back());
    auto& training = config.training->training;
    config.averaging->averaging.codec = *how.mixed;
    auto& groups = config.averaging->matchmaking;
    groups.mode = kind;
    if (how.toy.parameters > 64) // for a codebook, which is not sent with a short part
      groups.parts.largest = 1024;
    config.client_mode = kind == member_mode::client;
    training.auxiliary = kind == member_mode::auxiliary;
    config.averaging->averaging.auxiliary = training.auxiliary;
    if (training.many_groups)
      groups.target_group_size = 3; // in pairs of three peers, one is always left over
    config.training->make_learner =
      [make = config.training->make_learner]() -> result<std::unique_ptr<learner>> {
      auto made = make();
      if (!made)
        return made;
      return std::unique_ptr<learner>{std::make_unique<simulated_learner>(std::move(*made))};
    };
    return add(std::move(config), through);
  }
  /// REQUIRES: `who` lives.
  learner& learner_of(index who) const { return **learners_[who]; }

private:
  std::vector<learner_slot> learners_;
};

class MixedModes : public ::testing::TestWithParam<mode>, protected mixed_trainers {
protected:
  MixedModes() : mixed_trainers(23) {}
};

TEST_P(MixedModes, TrainTogether) {
  const auto& how = GetParam();
  auto first = join(how, {});
  auto second = join(how, {first});
  auto client = join(how, {first}, member_mode::client);
  std::vector<index> train{first, second, client};
  auto fourth = join(how, {first}, member_mode::auxiliary);
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
  how.set(config);
  if (config.how.average_gradients) { // beside the parameters and their statistic
    for (const auto& report : sim[first].rounds)
      if (report.outcome == round_outcome::complete) {
        EXPECT_EQ(report.values->size(), 3 * how.toy.parameters);
      }
  }
  auto helps = status_of(fourth);
  EXPECT_EQ(helps.steps, 0U);
  EXPECT_GT(helps.rounds_complete + helps.rounds_shrunk, 15U);
  if (!how.equal_parameters)
    return;
  auto equal = [&] {
    auto a = status_of(first);
    auto b = status_of(client);
    return a.epoch == b.epoch && !a.parameters.is_zero() && !b.parameters.is_zero();
  };
  ASSERT_TRUE(sim.run_until(equal, 5s)) << picture(sim);
  EXPECT_EQ(status_of(first).parameters, status_of(client).parameters);
}

INSTANTIATE_TEST_SUITE_P(Strategies, MixedModes, ::testing::ValuesIn(mixed_modes()),
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
  auto how = codecs_by_role;
  how.mixed = *parse_codec_choice("role:parameter=float16,optimizer=uniform8,buffer=blockwise8");
  how.toy.parameters = 1024;
  for (int n = 0; n < 3; ++n)
    join(how, n == 0 ? std::vector<index>{} : std::vector<index>{0});
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
