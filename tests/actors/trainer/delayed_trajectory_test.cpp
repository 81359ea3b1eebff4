// Two peers whose updates are delayed, against one process that delays them by hand.

#include <cmath>
#include <deque>

#include <gmock/gmock.h>

#include "tests/actors/trainer/training_world.hpp"
#include "tests/support/mean_gradient.hpp"

namespace waggle::testing {
namespace {

struct delays {
  const char* name;
  bool gradients;
  bool steps;
  bool hold_steps;  // each update takes the whole next epoch
  std::size_t late; // the updates that a gradient misses
  bool adam = false;
};

void PrintTo(const delays& d, std::ostream* out) {
  *out << d.name;
}

class DelayedTrajectory : public training_world, public ::testing::WithParamInterface<delays> {
protected:
  static training_config delayed(bool joins) {
    auto config = defaults();
    config.how.delay_gradients = GetParam().gradients;
    config.delay_optimizer_step = GetParam().steps;
    config.min_peers = 2;
    // The shares of the two differ from epoch to epoch.
    config.step_interval = joins ? 9ms : 10ms;
    if (joins)
      config.join_timeout = 5s;
    return config;
  }
  /// An update is let through once the next one waits behind it.
  void let_updates_pass() {
    for (const auto& m : members)
      while (m->gate->held.size() > 1) {
        auto next = std::move(m->gate->held.front());
        m->gate->held.pop_front();
        next();
        settle();
      }
  }
  static std::uint64_t share_of(const member& m, std::uint64_t epoch) {
    for (const auto& q : m.questions)
      if (q.epoch == epoch_id{epoch})
        return static_cast<std::uint64_t>(q.weight);
    return 0;
  }
};

// The recursion: θ_{k+1} = θ_k − opt(g(θ_{k−1})), with g(θ_{−1}) = g(θ_0), where g is
// the mean of the samples of both. If gradients are delayed, and the steps with them take a whole
// epoch, a gradient misses one update more (learner_abilities::passes_beside_updates).
TEST_P(DelayedTrajectory, OfTwoPeersIsTheDelayedRecursionOfOneProcess) {
  constexpr std::uint64_t epochs = 12;
  toy_options first{.data_seed = 1, .adam = GetParam().adam};
  toy_options second{.micro_batch = 6, .data_seed = 2, .adam = GetParam().adam};
  auto& a = add(delayed(false), first);
  auto& b = add(delayed(true), second);
  for (auto* m : {&a, &b}) {
    m->gate->updates = GetParam().hold_steps;
    tell(m->actor, start_training{});
  }
  pass_until([&] {
    let_updates_pass();
    return a.probe->applied.size() >= epochs && b.probe->applied.size() >= epochs;
  });

  auto plain = make_toy_learner(first);
  auto other = make_toy_learner(second);
  std::uint64_t together = 0;            // epochs with samples of both
  std::deque<std::vector<float>> missed; // updates that are not applied yet
  for (std::uint64_t k = 0; k < epochs; ++k) {
    SCOPED_TRACE("update " + std::to_string(k));
    auto share = share_of(a, k);
    auto rest = share_of(b, k);
    together += share > 0 && rest > 0 ? 1 : 0;
    ASSERT_GE(share + rest, 32U);
    for (std::uint64_t i = 0; i < share; i += a.micro_batch)
      plain->accumulate();
    for (std::uint64_t i = 0; i < rest; i += b.micro_batch)
      other->accumulate();
    auto g = mean_gradient_of(*plain);
    auto h = mean_gradient_of(*other);
    std::vector<float> mean;
    for (std::size_t i = 0; i < g.size(); ++i)
      mean.push_back(
        static_cast<float>((g[i] * static_cast<double>(share) + h[i] * static_cast<double>(rest))
                           / static_cast<double>(share + rest)));
    if (missed.size() == GetParam().late) {
      for (auto* one : {plain.get(), other.get()})
        one->apply(missed.front(), 0.1);
      missed.pop_front();
    }
    missed.push_back(mean);
    EXPECT_EQ(a.probe->applied[k], b.probe->applied[k]);
    for (std::size_t i = 0; i < mean.size(); ++i)
      ASSERT_NEAR(a.probe->applied[k][i], mean[i], 1e-6 + 1e-5 * std::abs(mean[i]));
  }
  EXPECT_GE(together, epochs - 2);
  for (auto* m : {&a, &b})
    m->gate->open();
  settle();
}

INSTANTIATE_TEST_SUITE_P(Each, DelayedTrajectory,
                         ::testing::Values(delays{"Gradients", true, false, false, 1},
                                           delays{"GradientsAdam", true, false, false, 1, true},
                                           delays{"Steps", false, true, true, 1},
                                           delays{"StepsAdam", false, true, true, 1, true},
                                           delays{"Both", true, true, false, 1},
                                           delays{"BothAdam", true, true, false, 1, true},
                                           delays{"BothWithSlowSteps", true, true, true, 2}),
                         [](const auto& info) { return std::string{info.param.name}; });

} // namespace
} // namespace waggle::testing
