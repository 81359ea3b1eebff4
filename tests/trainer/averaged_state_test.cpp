// Two models of LibTorch that step by themselves, and whose parameters and statistics are averaged
// once (as hivemind's test of its state averager), with and without an offloaded optimizer.

#include "runtime/training/averaged_tensors.hpp"
#include "runtime/training/learner.hpp"
#include "tests/actors/averager/averaging_world.hpp"
#include "tests/support/strategies.hpp"
#include "tests/trainer/small_learner.hpp"

namespace waggle::testing {
namespace {

constexpr int steps = 20;
constexpr int round_begins = 10;
constexpr double rate = 1e-2;

struct setting {
  const char* name;
  bool offload[2];  // of each peer
  int steps_during; // the round; 0: the round blocks
  bool amsgrad = false;
};

void PrintTo(const setting& s, std::ostream* out) {
  *out << s.name;
}

std::unique_ptr<learner> make(bool offload, bool amsgrad, std::uint64_t data_seed) {
  auto c = small_learner(identity_with("adam", {{"amsgrad", amsgrad ? 1 : 0}}));
  c.micro_batch = 8;
  c.data_seed = data_seed;
  c.offload_optimizer = offload;
  return made(c);
}

std::vector<float> values_of(const learner& model, std::span<const std::size_t> tensors) {
  std::vector<float> all;
  for (auto which : tensors) {
    std::vector<float> values(static_cast<std::size_t>(model.tensors()[which].elements()));
    model.read_tensor(which, values);
    all.insert(all.end(), values.begin(), values.end());
  }
  return all;
}

class AveragedState : public averaging_world, public ::testing::WithParamInterface<setting> {
protected:
  ~AveragedState() override { end_actors(); }

  static double step(learner& model) {
    auto loss = model.accumulate().loss;
    model.step_locally(rate);
    EXPECT_EQ(model.accumulated_samples(), 0U) << "the gradient has been used";
    return loss;
  }
};

TEST_P(AveragedState, IsTheMeanOfThePeersAndWhatTheyLearnedDuringTheRound) {
  const auto& how = GetParam();
  std::unique_ptr<learner> models[] = {make(how.offload[0], how.amsgrad, 1),
                                       make(how.offload[1], how.amsgrad, 2)};
  const auto& table = models[0]->tensors();
  std::vector<std::string> statistics{"exp_avg_sq"};
  if (how.amsgrad)
    statistics.emplace_back("max_exp_avg_sq");
  auto averages = local_updates({}, statistics).averages;
  auto averaged = averaged_tensors::of(table, averages);
  auto which = (*averaged)->indices();
  ASSERT_EQ((*averaged)->value_count(), (1 + statistics.size()) * models[0]->parameter_count());
  auto named = [&](std::string_view prefix) {
    std::vector<std::size_t> all;
    for (std::size_t i = 0; i < table.size(); ++i)
      if (table[i].name.starts_with(prefix))
        all.push_back(i);
    return all;
  };
  auto first_moments = named("exp_avg/"); // are not averaged
  auto largest = named("max_exp_avg_sq/");
  ASSERT_FALSE(first_moments.empty());
  ASSERT_EQ(largest.empty(), !how.amsgrad);
  add();
  add();

  double first_loss = 0;
  double last_loss = 0;
  for (int k = 0; k < steps; ++k) {
    if (k == round_begins) {
      std::vector<float> snapshots[2];
      for (int i = 0; i < 2; ++i) {
        snapshots[i].resize((*averaged)->value_count());
        models[i]->copy_tensors(which, snapshots[i]);
      }
      auto one = average(0, question(snapshots[0]));
      auto two = average(1, question(snapshots[1]));
      settle();
      ASSERT_TRUE(one.get() && two.get());
      const auto& mean = *one.get()->values;
      ASSERT_EQ(mean, *two.get()->values);
      std::size_t different = 0;
      for (std::size_t i = 0; i < mean.size(); ++i) {
        ASSERT_NEAR(mean[i], (snapshots[0][i] + snapshots[1][i]) / 2, 1e-6);
        different += snapshots[0][i] == snapshots[1][i] ? 0 : 1;
      }
      EXPECT_GT(different, mean.size() / 2) << "otherwise there was nothing to average";
      for (int i = 0; i < 2; ++i) {
        for (int during = 0; during < how.steps_during; ++during)
          step(*models[i]);
        auto learned = values_of(*models[i], which);
        auto own = values_of(*models[i], first_moments);
        models[i]->add_change(which, mean, snapshots[i]);
        auto merged = values_of(*models[i], which);
        auto parameters = models[i]->parameter_count();
        for (std::size_t v = 0; v < merged.size(); ++v) {
          auto exact = static_cast<double>(learned[v]) + mean[v] - snapshots[i][v];
          if (v < parameters || exact > 0) { // squares are never negative
            ASSERT_NEAR(merged[v], exact, 1e-6) << "value " << v << " of peer " << i;
          }
          if (how.steps_during == 0) {
            ASSERT_EQ(merged[v], mean[v]);
          }
        }
        EXPECT_EQ(values_of(*models[i], first_moments), own);
      }
      if (how.amsgrad) {
        EXPECT_NE(values_of(*models[0], largest), values_of(*models[0], named("exp_avg_sq/")));
      }
      if (how.steps_during == 0) {
        EXPECT_EQ(models[0]->parameters_digest(), models[1]->parameters_digest());
        EXPECT_EQ(values_of(*models[0], largest), values_of(*models[1], largest));
        EXPECT_NE(values_of(*models[0], first_moments), values_of(*models[1], first_moments));
      }
    }
    auto loss = (step(*models[0]) + step(*models[1])) / 2;
    first_loss = k == 0 ? loss : first_loss;
    last_loss = loss;
  }
  EXPECT_LT(last_loss, 0.9 * first_loss);
  EXPECT_NE(models[0]->parameters_digest(), models[1]->parameters_digest()) << "they step apart";
}

INSTANTIATE_TEST_SUITE_P(Each, AveragedState,
                         ::testing::Values(setting{"Plain", {false, false}, 0},
                                           setting{"Offloaded", {true, true}, 0},
                                           setting{"OffloadedByOne", {true, false}, 0},
                                           setting{"PlainDelayed", {false, false}, 3},
                                           setting{"OffloadedDelayed", {true, true}, 3},
                                           setting{"OffloadedByOneDelayed", {true, false}, 3},
                                           setting{"Amsgrad", {false, false}, 0, true},
                                           setting{"AmsgradOffloadedByOne", {true, false}, 0, true},
                                           setting{"AmsgradDelayed", {false, false}, 3, true}),
                         [](const auto& info) { return std::string{info.param.name}; });

} // namespace
} // namespace waggle::testing
