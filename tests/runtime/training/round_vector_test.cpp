#include "runtime/training/round_vector.hpp"

#include <limits>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/strategies.hpp"
#include "tests/support/toy_learner.hpp"

namespace waggle {
namespace {

using testing::collaborative, ::testing::Each, ::testing::ElementsAre, testing::local_updates,
  testing::make_toy_learner;

const peer_id own{std::array<std::byte, peer_id::size>{std::byte{1}}};
const peer_id other{std::array<std::byte, peer_id::size>{std::byte{2}}};

struct peer {
  explicit peer(const lane& how_it_averages, double alpha = 1, bool buffer = false)
    : averages{how_it_averages}, vector{averages, alpha, vector_pool::make(4)} {
    testing::toy_options how{.parameters = 4, .buffer = buffer};
    model = make_toy_learner(how);
    EXPECT_TRUE(vector.begin(model).ok());
  }
  contribution take() {
    contribution given{.from_state = true};
    EXPECT_FALSE(vector.take(given));
    return given;
  }
  lane averages;
  std::shared_ptr<learner> model;
  round_vector vector;
};

std::shared_ptr<const float_vector> all(float value, std::size_t size = 4) {
  return std::make_shared<float_vector>(size, value);
}

averaged_round of_two(std::shared_ptr<const float_vector> mean, double weight) {
  averaged_round round;
  round.update.epoch = epoch_id{7};
  round.update.mean = std::move(mean);
  round.update.rate = 0.5;
  round.update.by = {weight, {own, other}};
  round.contributors = 2;
  round.took_part = true;
  return round;
}

TEST(RoundVector, GivesTheGradientOfItsPassesAndZerosWithoutAny) {
  peer it{collaborative(8).averages};
  EXPECT_THAT(*it.vector.zeros(epoch_id{}), ::testing::AllOf(Each(0.0F), ::testing::SizeIs(4)));
  EXPECT_EQ(it.take().samples, 0U);
  it.model->accumulate();
  auto given = it.take();
  EXPECT_EQ(given.samples, 4U);
  EXPECT_EQ(given.weight, 4.0);
  EXPECT_THAT(*given.own, ::testing::Not(Each(0.0F)));
  EXPECT_EQ(it.model->accumulated_samples(), 0U);
}

TEST(RoundVector, AMeanOfGradientsIsTheUpdateOfItsEpoch) {
  peer it{collaborative(8).averages};
  it.model->accumulate();
  auto given = it.take();
  given.position = "here";
  auto round = of_two(all(2), 8);
  round.update.by.members.push_back(peer_id{});
  auto meaning = it.vector.meaning_of(round, given);
  EXPECT_TRUE(meaning.counted);
  EXPECT_EQ(meaning.update.mean, round.update.mean);
  EXPECT_EQ(meaning.update.epoch, epoch_id{7});
  EXPECT_EQ(meaning.update.rate, 0.5);
  EXPECT_EQ(meaning.update.work, 16U) << "samples times contributors";
  EXPECT_EQ(meaning.update.position, "here");
  EXPECT_THAT(meaning.update.by.members, ElementsAre(own, other, peer_id{}));
  EXPECT_EQ(meaning.samples, 8U);
  EXPECT_DOUBLE_EQ(meaning.norm, 4);
  EXPECT_FALSE(meaning.drift);
}

TEST(RoundVector, OthersWhoDecidedWithoutUsLeaveOurSamplesOut) {
  peer it{collaborative(8).averages};
  auto round = of_two(all(2), 8);
  round.took_part = false;
  auto meaning = it.vector.meaning_of(round, it.take());
  EXPECT_FALSE(meaning.counted);
  EXPECT_EQ(meaning.why_dropped, "left_out");
  EXPECT_NE(meaning.update.mean, nullptr);
}

TEST(RoundVector, AMeanThatIsNotFiniteOrDoesNotFitIsDropped) {
  peer it{collaborative(8).averages};
  auto infinite = std::numeric_limits<float>::infinity();
  auto meaning = it.vector.meaning_of(of_two(all(infinite), 8), it.take());
  EXPECT_FALSE(meaning.finite);
  EXPECT_EQ(meaning.update.mean, nullptr);
  EXPECT_EQ(meaning.why_dropped, "not_finite");
  EXPECT_EQ(meaning.update.work, 16U) << "the epoch has ended all the same";

  meaning = it.vector.meaning_of(of_two(all(1, 5), 8), it.take());
  EXPECT_FALSE(meaning.fits);
  EXPECT_EQ(meaning.update.mean, nullptr);
  EXPECT_EQ(meaning.why_dropped, "left_out");
}

TEST(RoundVector, ARoundWithoutWeightChangesNothing) {
  peer it{collaborative(8).averages};
  auto meaning = it.vector.meaning_of(of_two(all(2), 0), it.take());
  EXPECT_EQ(meaning.update.mean, nullptr);
  EXPECT_FALSE(meaning.counted);
}

TEST(RoundVector, ASpoiledPassOfOursAloneIsNoUpdate) {
  peer it{collaborative(8).averages};
  it.model->accumulate();
  auto given = it.take();
  given.fills = std::make_shared<filling>();
  given.fills->fail();
  auto alone = of_two(all(2), 4);
  alone.contributors = 1;
  auto meaning = it.vector.meaning_of(alone, given);
  EXPECT_EQ(meaning.update.mean, nullptr);
  EXPECT_EQ(meaning.why_dropped, "not_finite");
  EXPECT_NE(it.vector.meaning_of(of_two(all(2), 8), given).update.mean, nullptr)
    << "a round that the others have decided does not wait for it";
}

TEST(RoundVector, AMeanOfParametersIsAChangeFromWhatWasContributed) {
  peer it{local_updates({}).averages};
  contribution given{.own = all(1), .from_state = true};
  auto meaning = it.vector.meaning_of(of_two(all(3), 2), given);
  EXPECT_EQ(meaning.update.snapshot, given.own);
  EXPECT_THAT(*meaning.update.mean, Each(3.0F));
  ASSERT_TRUE(meaning.drift);
  EXPECT_DOUBLE_EQ(*meaning.drift, 4);
  EXPECT_EQ(meaning.norm, 0);
  EXPECT_FALSE(meaning.samples) << "the update has no samples";

  given.from_state = false; // it downloads a state meanwhile
  EXPECT_EQ(it.vector.meaning_of(of_two(all(3), 2), given).update.mean, nullptr);
}

TEST(RoundVector, APeerMayGoAShareOfTheWayToAMeanOfParameters) {
  peer it{local_updates({}).averages, 0.25};
  contribution given{.own = all(1), .from_state = true};
  EXPECT_THAT(*it.vector.meaning_of(of_two(all(3), 2), given).update.mean, Each(1.5F));
}

TEST(RoundVector, ALateMeanIsBlendedUnlessItHasOurSamplesOnly) {
  auto daso = find_strategy("daso")->make({}).averages;
  daso.merge = {lane_merge::rule::blend, 2};
  peer it{daso};
  contribution given{.own = all(1), .samples = 4, .from_state = true};
  auto meaning = it.vector.meaning_of(of_two(all(3), 8), given);
  EXPECT_DOUBLE_EQ(meaning.update.rate, 2.0 / 6);
  ASSERT_TRUE(meaning.drift);
  EXPECT_DOUBLE_EQ(*meaning.drift, 2) << "from the anchor";
  it.averages.merge.behind = 1; // of the next round
  EXPECT_DOUBLE_EQ(it.vector.meaning_of(of_two(all(3), 8), given).update.rate, 2.0 / 4);
  EXPECT_EQ(it.vector.meaning_of(of_two(all(3), 4), given).update.rate, 0);
}

TEST(RoundVector, CountsStepsWithTheMeanThatContainsThem) {
  auto counting = local_updates({}).averages;
  counting.counts_steps = true;
  peer it{counting};
  auto given = contribution{};
  given.own = it.vector.copy(3, 10);
  ASSERT_NE(given.own, nullptr);
  given.from_state = true;
  auto round = of_two(given.own, 2);
  std::uint64_t total = 10;
  round.total = &total;
  round.stepping = 2;
  auto meaning = it.vector.meaning_of(round, given);
  EXPECT_EQ(meaning.update.steps, 6) << "three of each of two peers";
  EXPECT_TRUE(meaning.counts_steps);
  round.took_part = false;
  EXPECT_FALSE(it.vector.meaning_of(round, given).counts_steps);
}

TEST(RoundVector, ACopyHasTheUpdatesThatAreNotAppliedYet) {
  peer it{local_updates({}).averages};
  auto before = *it.vector.copy(0, 0);
  missed_update update;
  update.mean = all(3);
  update.snapshot = all(1);
  EXPECT_NE(it.vector.ask(update), nullptr);
  EXPECT_EQ(it.vector.waiting(), 1U);
  auto after = *it.vector.copy(0, 0);
  for (std::size_t i = 0; i < before.size(); ++i)
    EXPECT_FLOAT_EQ(after[i], before[i] + 2);
  it.vector.applied();
  EXPECT_EQ(it.vector.waiting(), 0U);
}

TEST(RoundVector, BuffersBehindAGradientAreMergedAsAChange) {
  peer it{collaborative(8).averages, 1, true};
  it.model->accumulate();
  auto given = it.take();
  ASSERT_EQ(given.own->size(), 8U);
  auto meaning = it.vector.meaning_of(of_two(all(2, 8), 8), given);
  ASSERT_NE(meaning.update.snapshot, nullptr);
  EXPECT_THAT(*meaning.update.snapshot, ::testing::ElementsAreArray(std::vector<float>{
                                          given.own->begin() + 4, given.own->end()}));
  EXPECT_EQ(it.vector.ask(meaning.update), nullptr);
  it.model->accumulate(); // before the update is applied
  auto next = it.take();
  // The merge makes it 2, and a pass moves it by a tenth.
  EXPECT_NEAR((*next.own)[4], 2, 0.5);
}

TEST(RoundVector, OneUpdateAlwaysFitsWhateverItsSize) {
  peer it{collaborative(8).averages};
  EXPECT_FALSE(it.vector.exceed(0));
  missed_update update;
  update.mean = all(1);
  it.vector.ask(update);
  EXPECT_FALSE(it.vector.exceed(0));
  it.vector.ask(update);
  EXPECT_TRUE(it.vector.exceed(15));
}

} // namespace
} // namespace waggle
