#include "actors/averager.hpp"

#include <cmath>
#include <limits>
#include <numeric>

#include <gmock/gmock.h>

#include "runtime/core/random.hpp"
#include "tests/actors/averager/averaging_world.hpp"

namespace waggle {
namespace {

using ::testing::ElementsAre;
using ::testing::FloatEq;
using ::testing::Pointwise;

class Averager : public testing::averaging_world {
protected:
  using pending_report = pending<round_report>;

  /// All peers average; returns after all have reported.
  std::vector<round_report> average_all(const std::vector<average_vector>& questions) {
    group_size = questions.size();
    std::vector<pending_report> open;
    for (std::size_t i = 0; i < questions.size(); ++i)
      open.push_back(average(i, questions[i]));
    settle();
    std::vector<round_report> out;
    for (const auto& o : open) {
      EXPECT_TRUE(o.answered());
      out.push_back(o.answered() && o.get() ? *o.get() : round_report{});
    }
    return out;
  }
  ec refusal(const average_vector& what) {
    auto answer = average(0, what);
    return answer.answered() && !answer.get() ? answer.get().error().code : ec::none;
  }
};

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
  averaging_config config;
  config.part_workers = 2;
  config.detach_workers = false;
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

TEST_F(Averager, WeightsNeedNoNormalisation) {
  add();
  add({}, member_mode::client);
  auto reports = average_all({question({1, 10}, 0.3), question({2, 20}, 0.9)});
  for (const auto& report : reports) {
    EXPECT_THAT(*report.values, ElementsAre(FloatEq(1.75F), FloatEq(17.5F)));
    EXPECT_DOUBLE_EQ(report.weight_sum, 1.2);
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

TEST_F(Averager, AMemberWithoutWeightChangesNoBitOfTheResult) { // spec/optimizer.md §10, F8
  constexpr std::size_t values = 1'000;
  auto random_values = [](std::uint64_t seed) {
    random_source random{seed};
    std::vector<float> out(values);
    for (auto& x : out)
      x = static_cast<float>(random.unit() - 0.5) * std::exp2f(static_cast<float>(seed));
    return out;
  };
  // As a client it reduces nothing, so that the same reducers add up the same parts. As a node it
  // reduces parts of its own, which matters where an encoding depends on the part.
  struct setting {
    codec_id codec;
    member_mode mode; // of the third peer
  };
  for (auto [codec, mode] :
       {setting{codec_id::none, member_mode::client}, setting{codec_id::none, member_mode::node},
        setting{codec_id::float16, member_mode::client},
        setting{codec_id::uniform8, member_mode::client}}) {
    averaging_config config;
    config.codec = codec;
    change_plan = [](round_plan& plan) { plan.part_elements = 100; };
    auto average_of = [&, third = mode](std::size_t members) {
      auto begin = peers.size();
      group_size = members;
      std::vector<pending_report> open;
      for (std::size_t i = 0; i < members; ++i) {
        add(config, i < 2 ? member_mode::node : third);
        const double weights[] = {2, 3, 0};
        open.push_back(average(begin + i, question(random_values(i + 1), weights[i])));
      }
      settle();
      std::vector<round_report> reports;
      for (const auto& o : open) {
        reports.push_back(o.get() ? *o.get() : round_report{});
        EXPECT_EQ(reports.back().outcome, round_outcome::complete);
        EXPECT_EQ(reports.back().participants.size(), members);
        EXPECT_EQ(reports.back().weight_sum, 5);
      }
      return reports;
    };
    auto expected = average_of(2).front();
    ASSERT_TRUE(expected.values);
    for (const auto& report : average_of(3)) {
      ASSERT_TRUE(report.values);
      EXPECT_EQ(*report.values, *expected.values) << to_string(codec);
    }
  }
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
  averaging_config config;
  config.codec = *parse_codec_choice(GetParam());
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
  averaging_config config;
  config.codec = *parse_codec_choice("float16");
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

TEST_F(Averager, EachTensorTravelsByItsOwnCodec) {
  averaging_config config;
  config.codec = *parse_codec_choice("map:exact=none,half=float16,byte=uniform8");
  add(config);
  add(config);
  auto tensors = std::make_shared<std::vector<tensor_info>>();
  for (const char* key : {"exact", "half", "byte"})
    tensors->push_back({key, 5000, tensor_role::unspecified});
  std::vector<average_vector> questions;
  std::vector<std::vector<float>> inputs;
  for (std::uint64_t seed : {1, 2}) {
    random_source random{seed};
    std::vector<float> values(15000);
    for (auto& v : values)
      v = static_cast<float>(random.unit() * 2 - 1);
    inputs.push_back(values);
    questions.push_back(question(values));
    questions.back().tensors = tensors;
  }
  change_plan = [](round_plan& plan) { plan.part_elements = 3000; };
  auto reports = average_all(questions);
  ASSERT_TRUE(reports[0].values);
  EXPECT_EQ(*reports[0].values, *reports[1].values) << "byte-equal, whatever the codec";
  double error[3] = {};
  for (std::size_t i = 0; i < 15000; ++i) {
    auto e = (*reports[0].values)[i] - (static_cast<double>(inputs[0][i]) + inputs[1][i]) / 2;
    error[i / 5000] += e * e / 5000;
  }
  EXPECT_LT(error[0], 1e-14);
  EXPECT_GT(error[1], 0);
  EXPECT_LT(error[1], 1e-5);
  EXPECT_GT(error[2], 1e-7);
  EXPECT_LT(error[2], 1e-2);
}

TEST_F(Averager, ErrorFeedbackMakesRepeatedRoundsExact) {
  averaging_config with;
  with.codec = codec_id::uniform8;
  auto without = with;
  with.error_feedback = true;
  auto bias = [this](const averaging_config& config) {
    auto first = peers.size();
    add(config);
    add(config);
    group_size = 2;
    change_plan = [](round_plan& plan) { plan.part_elements = 4096; };
    random_source random{3};
    std::vector<float> values(4096);
    for (auto& v : values)
      v = static_cast<float>(random.unit());
    std::vector<double> sum(values.size());
    constexpr int rounds = 64;
    for (int round = 0; round < rounds; ++round) {
      auto a = average(first, question(values));
      auto b = average(first + 1, question(values));
      for (std::size_t i = 0; i < values.size(); ++i)
        sum[i] += (*a.get()->values)[i];
    }
    double worst = 0;
    for (std::size_t i = 0; i < values.size(); ++i)
      worst = std::max(worst, std::abs(sum[i] / rounds - values[i]));
    return worst;
  };
  auto biased = bias(without);
  auto exact = bias(with);
  EXPECT_GT(biased, 1e-3);
  // The remaining error is the rounding of the reducers, which have no feedback.
  EXPECT_LT(exact, biased);
}

// -- control of a step ----------------------------------------------------------------------------

TEST_F(Averager, AStepWaitsForItsTriggerWhileOthersRun) {
  for (int i = 0; i < 4; ++i)
    add();
  group_size = 4;
  std::vector<pending_report> open;
  for (std::size_t i = 0; i < 4; ++i) {
    auto what = question({static_cast<float>(i)});
    what.require_trigger = i == 1 || i == 2;
    open.push_back(average(i, what));
  }
  settle();
  EXPECT_EQ(stage(0), step_stage::running_allreduce);
  EXPECT_EQ(stage(1), step_stage::awaiting_trigger);
  EXPECT_EQ(stage(2), step_stage::awaiting_trigger);
  EXPECT_EQ(stage(3), step_stage::running_allreduce);
  tell(peers[1]->averager, trigger_step{1, nullptr, {}});
  EXPECT_FALSE(open[0].answered());
  // The values and the weight may come with the trigger.
  tell(peers[2]->averager, trigger_step{1, vector({6}), 3.0});
  tell(peers[2]->averager, trigger_step{1, nullptr, {}});
  for (std::size_t i = 0; i < 4; ++i) {
    ASSERT_TRUE(open[i].get()) << i;
    EXPECT_THAT(*open[i].get()->values, ElementsAre(FloatEq((0 + 1 + 3 * 6 + 3) / 6.0F)));
    EXPECT_EQ(stage(i), step_stage::finished);
  }
}

TEST_F(Averager, TheGroupGoesOnWithoutThoseWhoCancel) {
  for (int i = 0; i < 4; ++i)
    add();
  group_size = 4;
  std::vector<pending_report> open;
  for (std::size_t i = 0; i < 4; ++i) {
    auto what = question({static_cast<float>(i)});
    what.require_trigger = true;
    open.push_back(average(i, what));
  }
  group_size = 2; // for the peers that search again
  for (std::size_t i : {0, 1})
    tell(peers[i]->averager, cancel_step{1});
  for (std::size_t i : {0, 1}) {
    ASSERT_TRUE(open[i].get());
    EXPECT_EQ(open[i].get()->why.code, ec::cancelled);
    EXPECT_EQ(open[i].get()->values, nullptr);
  }
  for (std::size_t i : {2, 3})
    tell(peers[i]->averager, trigger_step{1, nullptr, {}});
  pass(5s);
  for (std::size_t i : {2, 3}) {
    ASSERT_TRUE(open[i].get());
    EXPECT_EQ(open[i].get()->contributors.size(), 2U);
    EXPECT_THAT(*open[i].get()->values, ElementsAre(2.5F));
  }
}

TEST_F(Averager, ARunningStepCanBeCancelled) {
  for (int i = 0; i < 3; ++i)
    add();
  group_size = 3;
  peers[0]->deaf = true; // the parts that it needs do not arrive
  std::vector<pending_report> open;
  for (std::size_t i = 0; i < 3; ++i)
    open.push_back(average(i, question({1, 2, 3})));
  EXPECT_EQ(stage(1), step_stage::running_allreduce);
  group_size = 2;
  tell(peers[0]->averager, cancel_step{1});
  ASSERT_TRUE(open[0].get());
  EXPECT_EQ(open[0].get()->why.code, ec::cancelled);
  settle();
  for (std::size_t i : {1, 2}) {
    ASSERT_TRUE(open[i].get()) << "the others need not wait for a timeout";
    EXPECT_THAT(*open[i].get()->values, ElementsAre(1, 2, 3));
  }
}

TEST_F(Averager, ASearchCanBeCancelled) {
  add();
  auto open = average(0, question({1}));
  EXPECT_EQ(stage(0), step_stage::looking_for_group);
  tell(peers[0]->averager, cancel_step{2});
  EXPECT_FALSE(open.answered()) << "the number of another step";
  tell(peers[0]->averager, cancel_step{1});
  ASSERT_TRUE(open.get());
  EXPECT_EQ(open.get()->why.code, ec::cancelled);
  EXPECT_TRUE(searches.empty());
  // And the next step is not delayed.
  add();
  auto reports = average_all({question({1}), question({3})});
  EXPECT_THAT(*reports[0].values, ElementsAre(2));
}

TEST_F(Averager, AStepThatNobodyTriggersEndsAtItsDeadline) {
  add();
  add();
  auto waits = question({1});
  waits.require_trigger = true;
  waits.deadline = 2s;
  auto open = average(0, waits);
  auto other = average(1, question({1}));
  pass(2100ms);
  ASSERT_TRUE(open.get());
  EXPECT_EQ(open.get()->why.code, ec::timeout);
}

TEST_F(Averager, WithoutRetriesOneFailureIsTheEnd) {
  add();
  add();
  change_plan = [](round_plan& plan) { plan.min_contributors = 2; };
  for (bool retries : {true, false}) {
    peers[0]->deaf = true;
    auto what = question({1});
    what.allow_retries = retries;
    what.deadline = 20s;
    auto before = groups;
    auto a = average(0, what);
    auto b = average(1, what);
    pass(30s);
    ASSERT_TRUE(a.get());
    EXPECT_EQ(a.get()->outcome, round_outcome::failed);
    EXPECT_EQ(groups - before > 1, retries);
  }
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
  EXPECT_EQ(refusal(what), ec::wrong_shape) << "no values, and no trigger that supplies them";
  what = question({1, 2});
  what.alpha = std::nan("");
  EXPECT_EQ(refusal(what), ec::bad_config);
  what = question({1, 2});
  what.gather.assign(gather_bytes_max + 1, 'x');
  EXPECT_EQ(refusal(what), ec::oversize);
  what = question({1, 2});
  what.scheduled_in = what.deadline;
  EXPECT_EQ(refusal(what), ec::bad_config);
  what = question({1, 2});
  what.tensors =
    std::make_shared<std::vector<tensor_info>>(1, tensor_info{"a", 3, tensor_role::parameter});
  EXPECT_EQ(refusal(what), ec::wrong_shape);
  auto busy = average(0, question({1}));
  EXPECT_EQ(refusal(question({1})), ec::overloaded);
  EXPECT_FALSE(busy.answered());
}

TEST_F(Averager, ValuesThatComeWithTheTriggerAreCheckedToo) {
  add();
  auto what = question({1, 2});
  what.values.reset();
  what.elements = 2;
  what.require_trigger = true;
  auto open = average(0, what);
  tell(peers[0]->averager, trigger_step{1, vector({1, std::nanf("")}), {}});
  ASSERT_TRUE(open.get());
  EXPECT_EQ(open.get()->why.code, ec::non_finite);
}

// -- persistent groups ----------------------------------------------------------------------------

TEST_F(Averager, APersistentGroupNeedsNoMatchmaking) {
  add();
  add();
  auto what = question({1});
  what.reuse_group = true;
  what.expected_peers = 2;
  average_all({what, what});
  auto formed = groups;
  for (int round = 0; round < 5; ++round)
    for (const auto& report : average_all({what, what}))
      EXPECT_EQ(report.outcome, round_outcome::complete);
  EXPECT_EQ(groups, formed);
}

TEST_F(Averager, AVectorThatIsNotFiniteOnlyHarmsItsOwnerInAPersistentGroup) {
  for (auto codec : {codec_id::none, codec_id::float16})
    for (std::size_t poisoned : {0U, 1U, 2U}) { // including the leader
      auto first = peers.size();
      averaging_config config;
      config.codec = codec;
      auto what = question({1, 1, 1, 1, 1, 1});
      what.reuse_group = true;
      what.expected_peers = 3;
      std::vector<pending_report> open;
      group_size = 3;
      for (std::size_t i = 0; i < 3; ++i) {
        add(config);
        open.push_back(average(first + i, what));
      }
      settle();
      auto formed = groups;
      auto bad = what;
      bad.values = vector({1, 1, 1, 1, 1, std::nanf("")});
      open.clear();
      for (std::size_t i = 0; i < 3; ++i)
        open.push_back(average(first + i, i == poisoned ? bad : what));
      settle();
      pass(10s); // longer than a takeover
      EXPECT_EQ(groups, formed) << "the group persisted";
      for (std::size_t i = 0; i < 3; ++i) {
        ASSERT_TRUE(open[i].answered() && open[i].get());
        auto report = *open[i].get();
        if (i == poisoned) {
          EXPECT_EQ(report.outcome, round_outcome::failed);
          EXPECT_EQ(report.why.code, ec::non_finite) << to_string(report.why);
        } else {
          EXPECT_EQ(report.outcome, round_outcome::shrunk) << to_string(report.why);
          EXPECT_EQ(report.contributors.size(), 2U);
          EXPECT_THAT(*report.values, ::testing::Each(1.0F));
        }
      }
      auto again = average(first + poisoned, bad);
      ASSERT_TRUE(again.answered());
      EXPECT_FALSE(again.get()) << "it no longer takes part";
    }
}

TEST_F(Averager, AVectorThatWeighsNothingIsCheckedInAPersistentGroup) {
  add();
  add();
  auto what = question({1, 1});
  what.reuse_group = true;
  what.expected_peers = 2;
  average_all({what, what});
  auto bad = question({1, std::nanf("")}, 0);
  bad.reuse_group = true;
  bad.expected_peers = 2;
  EXPECT_EQ(refusal(bad), ec::non_finite) << "reducers would not check it";
}

TEST_F(Averager, AGroupOfABucketDoesNotStand) {
  regrouped = true;
  add();
  add();
  auto what = question({1});
  what.reuse_group = true;
  what.expected_peers = 2;
  for (int round = 1; round <= 3; ++round) {
    average_all({what, what});
    EXPECT_EQ(groups, round) << "every round has other members";
  }
}

// Peer 1 has begun the group's next round when peer 0, which has not, loses peer 2.
TEST_F(Averager, AMemberThatLosesAnotherBetweenRoundsCallsTheRestBackAtOnce) {
  group_size = 3;
  for (int i = 0; i < 3; ++i)
    add();
  auto what = question({1});
  what.reuse_group = true;
  what.expected_peers = 3;
  average_all({what, what, what});
  auto began = groups;
  auto second = average(1, what);
  settle();
  peer_disconnected lost{peers[2]->ctx.record.id, {ec::peer_lost, {}}};
  tell(peers[0]->averager, lost);
  tell(peers[1]->averager, lost);
  group_size = 2;
  auto first = average(0, what);
  settle();
  EXPECT_EQ(groups, began + 1) << "both search at once, without waiting for a timeout";
  ASSERT_TRUE(first.answered() && first.get());
  ASSERT_TRUE(second.answered() && second.get());
  EXPECT_EQ(first.get()->outcome, round_outcome::complete);
  EXPECT_EQ(first.get()->round, second.get()->round);
}

TEST_F(Averager, AMemberThatLeavesThePersistentGroupDelaysNoOther) {
  for (int i = 0; i < 3; ++i)
    add();
  auto what = question({1});
  what.reuse_group = true;
  average_all({what, what, what});
  // The first peer searches for a group of two; the others begin the persistent group's round.
  group_size = 2;
  auto two = what;
  two.expected_peers = 2;
  auto second = average(1, what);
  auto first = average(0, two);
  settle();
  ASSERT_TRUE(first.get());
  ASSERT_TRUE(second.get());
  EXPECT_EQ(first.get()->outcome, round_outcome::complete);
  EXPECT_EQ(second.get()->contributors.size(), 2U);
}

} // namespace
} // namespace waggle
