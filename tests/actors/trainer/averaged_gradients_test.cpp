// Trainers that average the gradient of their last step with their parameters.

#include <gmock/gmock.h>

#include "tests/actors/trainer/training_world.hpp"
#include "tests/support/mean_gradient.hpp"

namespace waggle::testing {
namespace {

using vector = std::vector<float>;

/// The rate is 0, so the parameters stay, and each pass gives what it would give in a plain loop.
struct AveragedGradients : training_world {
  static training_config averaging(bool joins = false) {
    auto config = defaults();
    config.strategy = "local-updates";
    config.how.average_gradients = true;
    config.schedule.peak = 0;
    if (joins)
      config.join_timeout = 5s;
    return config;
  }
  static constexpr std::size_t parameters = 8;

  /// What the first passes of a member gave.
  static std::vector<vector> given_by(std::uint64_t data_seed, std::size_t passes) {
    auto plain = make_toy_learner({.data_seed = data_seed});
    std::vector<vector> all;
    for (std::size_t i = 0; i < passes; ++i) {
      plain->accumulate();
      testing::take_mean_gradient(*plain, all.emplace_back(parameters));
    }
    return all;
  }
  /// What was added to each gradient with which the member has stepped.
  static std::vector<vector> corrections_of(const member& m, std::uint64_t data_seed) {
    auto given = given_by(data_seed, m.probe->applied.size());
    std::vector<vector> all;
    for (std::size_t k = 0; k < given.size(); ++k)
      for (std::size_t i = 0; i < parameters; ++i)
        (i == 0 ? all.emplace_back() : all.back()).push_back(m.probe->applied[k][i] - given[k][i]);
    return all;
  }
  static bool is_zero(const vector& v) {
    return std::all_of(v.begin(), v.end(), [](float x) { return std::abs(x) < 1e-6F; });
  }
  /// The gradient in a contribution.
  static vector gradient_in(const average_in_group& question) {
    return {question.values->begin() + parameters, question.values->end()};
  }
  /// Mean − contribution, in each round of two members.
  static std::vector<vector> changes_of(const member& m, const member& other) {
    std::vector<vector> all;
    for (const auto& own : m.questions)
      for (const auto& theirs : other.questions)
        if (theirs.epoch == own.epoch && theirs.weight > 0 && own.weight > 0) {
          auto a = gradient_in(own);
          auto b = gradient_in(theirs);
          auto& change = all.emplace_back();
          for (std::size_t i = 0; i < parameters; ++i)
            change.push_back((a[i] + b[i]) / 2 - a[i]);
        }
    return all;
  }
};

TEST_F(AveragedGradients, EachChangeIsAddedToTheGradientOfOneStep) {
  auto& a = add_started(averaging());
  auto& b = add_started(averaging(true));
  pass_until([&] { return all_at(10); });
  pass(20ms); // the last change has been used
  for (auto [m, other, seed] : {std::tuple{&a, &b, 1U}, {&b, &a, 2U}}) {
    ASSERT_EQ(m->probe->applied.size(), m->probe->micro_steps);
    auto corrections = corrections_of(*m, seed);
    std::erase_if(corrections, is_zero);
    auto changes = changes_of(*m, *other);
    ASSERT_GE(corrections.size(), 5U);
    ASSERT_LE(corrections.size(), changes.size());
    for (std::size_t k = 0; k < corrections.size(); ++k)
      EXPECT_THAT(corrections[k], ::testing::Pointwise(::testing::FloatNear(1e-5F), changes[k]))
        << "round " << k;
    EXPECT_GE(corrections.size() + 1, changes.size()) << "one round may be under way";
  }
}

TEST_F(AveragedGradients, APassThatIsNotFiniteLeavesTheCorrectionForTheNextStep) {
  auto& a = add_started(averaging());
  auto& b = add_started(averaging(true));
  pass_until([&] { return all_at(3); });
  hold_rounds = true;
  pass_until([&] { return !a.answers.empty() && !b.answers.empty(); });
  pass(15ms);
  auto own = gradient_in(a.questions.back());
  auto other = gradient_in(b.questions.back());
  auto steps = a.probe->applied.size();
  a.probe->non_finite_steps = 2;
  release_rounds();
  pass_until([&] { return a.probe->non_finite_steps == 0; });
  EXPECT_EQ(a.probe->applied.size(), steps);
  pass_until([&] { return a.probe->applied.size() == steps + 1; });
  auto given = given_by(1, steps + 1); // a pass that is not finite draws no samples here
  for (std::size_t i = 0; i < parameters; ++i)
    EXPECT_NEAR(a.probe->applied.back()[i], given.back()[i] + (own[i] + other[i]) / 2 - own[i],
                1e-5);
}

TEST_F(AveragedGradients, TheDriftIsTheDistanceOfTheOwnParametersFromTheirMean) {
  auto learning = averaging();
  learning.schedule.peak = 0.05;
  auto joining = averaging(true);
  joining.schedule.peak = 0.05;
  auto& a = add_started(learning);
  auto& b = add_started(joining);
  pass_until([&] { return all_at(3); });
  hold_rounds = true;
  pass_until([&] { return !a.answers.empty() && !b.answers.empty(); });
  const auto& of_a = a.questions.back();
  const auto& of_b = b.questions.back();
  ASSERT_EQ(of_a.epoch, of_b.epoch);
  double squares[2] = {};
  for (std::size_t i = 0; i < parameters; ++i) {
    double x = (*of_a.values)[i];
    double y = (*of_b.values)[i];
    auto mean = (of_a.weight * x + of_b.weight * y) / (of_a.weight + of_b.weight);
    squares[0] += (mean - x) * (mean - x);
    squares[1] += (mean - y) * (mean - y);
  }
  EXPECT_GT(squares[0], 1e-6) << "they have learned apart";
  EXPECT_NE(gradient_in(of_a), gradient_in(of_b));
  release_rounds();
  EXPECT_NEAR(exported(*a.ctx.metrics, "waggle_training_drift"), std::sqrt(squares[0]), 1e-5);
  EXPECT_NEAR(exported(*b.ctx.metrics, "waggle_training_drift"), std::sqrt(squares[1]), 1e-5);
}

TEST_F(AveragedGradients, TheyAreNoDriftOfTheParameters) {
  auto& a = add_started(averaging());
  auto& b = add_started(averaging(true));
  pass_until([&] { return all_at(6); });
  EXPECT_NE(gradient_in(a.questions.back()), gradient_in(b.questions.back()));
  EXPECT_EQ(exported(*a.ctx.metrics, "waggle_training_drift"), 0.0);
}

} // namespace
} // namespace waggle::testing
