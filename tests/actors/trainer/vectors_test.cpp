// What a trainer tells the averager about the vectors that it contributes.

#include <gmock/gmock.h>

#include "tests/actors/trainer/training_world.hpp"

namespace waggle::testing {
namespace {

using ::testing::ElementsAre;

struct tensor {
  std::string name;
  std::uint64_t elements;
  tensor_role role;

  friend bool operator==(const tensor&, const tensor&) = default;
  friend void PrintTo(const tensor& t, std::ostream* to) {
    *to << t.name << " (" << t.elements << ", " << to_string(t.role) << ")";
  }
};

struct Vectors : training_world {
  /// The tensors in the vectors of a peer, once it has asked for a mean.
  std::vector<tensor> tensors_of(const training_config& config, const toy_options& toy) {
    auto& m = add_started(config, toy);
    pass_until([&] { return !m.questions.empty(); });
    std::vector<tensor> all;
    if (!m.described || m.described->tensors.size() != 1) {
      ADD_FAILURE() << "the averager knows no tensors";
      return all;
    }
    std::uint64_t elements = 0;
    for (const auto& one : *m.described->tensors.front()) {
      all.push_back({one.key, one.elements, one.role});
      elements += one.elements;
    }
    EXPECT_EQ(m.described->elements, elements);
    EXPECT_EQ(m.questions.front().values->size(), elements);
    end(m);
    return all;
  }
};

TEST_F(Vectors, AreGradientsAndBuffersOfTheirTensors) {
  EXPECT_THAT(tensors_of(defaults(), {}), ElementsAre(tensor{"weights", 8, tensor_role::gradient}));
  EXPECT_THAT(tensors_of(defaults(), {.parameters = 6, .buffer = true, .rows = 2, .adam = true}),
              ElementsAre(tensor{"weights", 6, tensor_role::gradient},
                          tensor{"running_mean", 6, tensor_role::buffer}));
}

TEST_F(Vectors, AreParametersAndTheStatisticsThatAreNamed) {
  auto config = defaults();
  config.strategy = "local-updates";
  EXPECT_THAT(tensors_of(config, {}), ElementsAre(tensor{"weights", 8, tensor_role::parameter}));
  config.how.statistics = {"momentum_buffer"};
  EXPECT_THAT(tensors_of(config, {}),
              ElementsAre(tensor{"weights", 8, tensor_role::parameter},
                          tensor{"momentum_buffer/weights", 8, tensor_role::optimizer}));
  config.how.statistics = {"exp_avg_sq"};
  EXPECT_THAT(tensors_of(config, {.parameters = 5, .adam = true}),
              ElementsAre(tensor{"weights", 5, tensor_role::parameter},
                          tensor{"exp_avg_sq/weights", 5, tensor_role::optimizer}));
}

// Of parameters, the group sends changes: they are much smaller than the values.
TEST_F(Vectors, AreAveragedAsChangesIfTheyAreParameters) {
  for (const auto& row : strategy_table()) {
    auto config = defaults();
    bool by_steps = std::any_of(row.numbers.begin(), row.numbers.end(),
                                [](const named_number& n) { return n.name == "steps"; });
    config.strategy = std::string{row.name} + (by_steps ? ":steps=4" : "");
    config.how.steps_period = 4;
    auto& m = add_started(config);
    pass_until([&] { return m.questions.size() >= 3; });
    for (const auto& question : m.questions)
      EXPECT_EQ(question.deltas, row.averages_parameters()) << row.name;
    end(m);
  }
}

TEST_F(Vectors, AreNoChangesIfTheyAreDelayedGradients) {
  auto config = defaults();
  config.how.delay_gradients = true;
  auto& m = add_started(config);
  pass_until([&] { return m.questions.size() >= 3; });
  for (const auto& question : m.questions)
    EXPECT_FALSE(question.deltas);
}

} // namespace
} // namespace waggle::testing
