// What the averager averages, and what it refuses.

#include <cmath>
#include <limits>
#include <numeric>

#include "runtime/core/random.hpp"
#include "tests/actors/averager/averager_fixture.hpp"

namespace waggle {
namespace {

using ::testing::ElementsAre;

// -- what is averaged -----------------------------------------------------------------------------

TEST_F(Averager, EveryMixOfClientsAndAuxiliariesGetsTheWeightedMean) {
  struct mix {
    std::size_t clients, auxiliaries;
  };
  random_source drawn{23};
  for (auto [clients, auxiliaries] :
       {mix{0, 0}, mix{0, 1}, mix{0, 2}, mix{1, 0}, mix{1, 1}, mix{1, 2}, mix{2, 0}, mix{2, 1},
        mix{2, 2}, mix{0, 3}, mix{1, 3}, mix{0, 4}}) {
    auto first = peers.size();
    std::vector<pending_report> open;
    std::vector<std::vector<float>> inputs;
    std::vector<double> weights;
    group_size = 4;
    for (std::size_t i = 0; i < 4; ++i) {
      auto mode = i < auxiliaries             ? member_mode::auxiliary
                  : i < auxiliaries + clients ? member_mode::client
                                              : member_mode::node;
      add({}, mode);
      random_source random{7 + i};
      std::vector<float> values(17);
      for (auto& v : values)
        v = static_cast<float>(random.unit()) - 0.5F;
      auto what = question(values, 0.1 + 3 * drawn.unit());
      what.gather = "peer " + std::to_string(i);
      if (mode == member_mode::auxiliary) {
        what.values.reset();
        what.elements = values.size();
      } else {
        inputs.push_back(values);
        weights.push_back(what.weight);
      }
      open.push_back(average(first + i, what));
    }
    settle();
    auto weight_sum = std::accumulate(weights.begin(), weights.end(), 0.0);
    for (const auto& o : open) {
      ASSERT_TRUE(o.get()) << clients << " clients, " << auxiliaries << " auxiliaries";
      const auto report = *o.get();
      EXPECT_EQ(report.outcome, round_outcome::complete);
      EXPECT_EQ(report.contributors.size(), inputs.size());
      EXPECT_EQ(report.gathered.size(), 4U) << "auxiliaries and clients gather, too";
      if (inputs.empty())
        continue;
      ASSERT_TRUE(report.values);
      for (std::size_t k = 0; k < 17; ++k) {
        double sum = 0;
        for (std::size_t i = 0; i < inputs.size(); ++i)
          sum += weights[i] * inputs[i][k];
        EXPECT_NEAR((*report.values)[k], sum / weight_sum, 1e-6);
      }
    }
  }
}

TEST_F(Averager, PartsThatItsWorkersReduceGiveTheSameMean) {
  averaging_config config{.part_workers = 2, .detach_workers = false};
  config.round.offload_elements = 1;
  add(config);
  add(config);
  for (int round = 0; round < 3; ++round) {
    auto first = average(0, question({1, 2, 3}));
    auto second = average(1, question({3, 4, 5}));
    pass(1s);
    EXPECT_EQ(*first.get()->values, (float_vector{2, 3, 4}));
    EXPECT_EQ(*second.get()->values, (float_vector{2, 3, 4}));
  }
}

TEST_F(Averager, WeightsOfZeroLeaveEverybodyWithItsOwn) { // INV-4
  add();
  add();
  auto reports = average_all({question({1, 2}, 0), question({3, 4}, 0)});
  EXPECT_EQ(reports[0].outcome, round_outcome::complete);
  EXPECT_THAT(*reports[0].values, ElementsAre(1, 2));
  EXPECT_THAT(*reports[1].values, ElementsAre(3, 4));
}

TEST_F(Averager, AlphaSaysHowFarToGo) {
  add();
  add();
  auto half = question({0, 8});
  half.alpha = 0.5;
  auto beyond = question({4, 0});
  beyond.alpha = 2;
  auto reports = average_all({half, beyond});
  EXPECT_THAT(*reports[0].values, ElementsAre(1, 6));
  EXPECT_THAT(*reports[1].values, ElementsAre(0, 8));
}

class AveragerByCodec : public Averager, public ::testing::WithParamInterface<const char*> {};

TEST_P(AveragerByCodec, EqualVectorsStayAsTheyAreByDeltas) {
  averaging_config config{.codec = *parse_codec_choice(GetParam())};
  for (int i = 0; i < 3; ++i)
    add(config);
  random_source random{11};
  std::vector<float> values(5'000);
  for (auto& x : values)
    x = static_cast<float>(random.unit() - 0.5) * 3;
  for (int round = 0; round < 4; ++round) {
    std::vector<average_vector> questions(3, question(values));
    for (auto& what : questions)
      what.deltas = true;
    questions[1].weight = 2.5;
    for (const auto& report : average_all(questions)) {
      EXPECT_EQ(report.outcome, round_outcome::complete);
      ASSERT_TRUE(std::equal(values.begin(), values.end(), report.values->begin()));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Codecs, AveragerByCodec,
                         ::testing::Values("none", "float16", "bfloat16", "scaled_float16",
                                           "uniform8", "quantile8", "blockwise8"),
                         [](const auto& info) { return std::string{info.param}; });

TEST_F(Averager, DeltasKeepOnesOwnRoundingError) {
  averaging_config config{.codec = *parse_codec_choice("float16")};
  add(config);
  add(config);
  constexpr float fine = 1.0F / 4096; // float16 has steps of 1/1024 above 1
  std::vector<average_vector> questions{question(std::vector<float>(1'000, 1 + fine)),
                                        question(std::vector<float>(1'000, 3 + 2 * fine))};
  for (auto& what : questions)
    what.deltas = true;
  auto reports = average_all(questions);
  EXPECT_EQ(reports[0].values->front(), 2 + fine);
  EXPECT_EQ(reports[1].values->front(), 2 + 2 * fine);
}

// -- refusals -------------------------------------------------------------------------------------

TEST_F(Averager, RefusesWhatCannotBeAveraged) {
  add();
  EXPECT_EQ(refusal(question({})), ec::wrong_shape);
  EXPECT_EQ(refusal(question({std::nanf("")})), ec::non_finite);
  EXPECT_EQ(refusal(question({1}, -1)), ec::bad_weight);
  EXPECT_EQ(refusal(question({1}, std::numeric_limits<double>::infinity())), ec::bad_weight);
  EXPECT_EQ(refusal(question({1}, std::nan(""))), ec::bad_weight);
  auto what = question({1, 2});
  what.elements = 3;
  EXPECT_EQ(refusal(what), ec::wrong_shape);
  what = question({1, 2});
  what.values.reset();
  EXPECT_EQ(refusal(what), ec::wrong_shape) << "no values";
  what = question({1, 2});
  what.alpha = std::nan("");
  EXPECT_EQ(refusal(what), ec::bad_config);
  what = question({1, 2});
  what.gather.assign(gather_bytes_max + 1, 'x');
  EXPECT_EQ(refusal(what), ec::oversize);
  auto busy = average(0, question({1}));
  EXPECT_EQ(refusal(question({1})), ec::overloaded);
  EXPECT_FALSE(busy.answered());
}

} // namespace
} // namespace waggle
