#include "runtime/progress/parameter_vote.hpp"

#include <deque>

#include <gtest/gtest.h>

#include "runtime/crypto/digest.hpp"

namespace waggle {
namespace {

const auto not_finite = sha256("not finite");

/// Our model, of epoch 5 with parameters "a", and what others report.
class ballots {
public:
  ballots() { it.hold(epoch_id{5}, sha256("a")); }

  swarm_progress::peer& add(const std::string& parameters, std::uint64_t epoch = 5) {
    auto& peer = reports_.emplace_back();
    peer.who.id.bytes[0] = static_cast<std::byte>(reports_.size());
    peer.epoch = epoch_id{epoch};
    peer.claim.ready = true;
    if (!parameters.empty())
      peer.parameters = sha256(parameters);
    return peer;
  }
  parameter_vote::outcome compare() {
    std::vector<const swarm_progress::peer*> voters;
    for (const auto& peer : reports_)
      voters.push_back(&peer);
    return it.compare(voters);
  }

  parameter_vote it{not_finite};

private:
  std::deque<swarm_progress::peer> reports_;
};

TEST(ParameterVote, KeepsWhatMostHold) {
  ballots b;
  EXPECT_FALSE(b.compare().minority);
  b.add("a");
  auto two = b.compare();
  EXPECT_FALSE(two.minority);
  EXPECT_EQ(two.found, "equal");
  EXPECT_FALSE(two.changed);
  b.add("b");
  auto three = b.compare();
  EXPECT_FALSE(three.minority);
  EXPECT_TRUE(three.changed);
  EXPECT_EQ(three.found, "differing");
  EXPECT_EQ(three.first.bytes[0], std::byte{2});
  EXPECT_EQ(b.it.differing(), 1U);
  EXPECT_EQ(b.compare().found, "") << "counted once an epoch";
}

TEST(ParameterVote, GivesUpWhatFewerHold) {
  ballots b;
  b.add("b");
  b.add("b");
  EXPECT_TRUE(b.compare().minority);
}

TEST(ParameterVote, OfTwoOneGivesWay) {
  ballots ours;
  ours.add("b");
  ballots theirs;
  theirs.it.hold(epoch_id{5}, sha256("b"));
  theirs.add("a");
  EXPECT_NE(ours.compare().minority, theirs.compare().minority);
}

TEST(ParameterVote, WaitsForMoreThanHalfOrForAll) {
  ballots b;
  for (int i = 0; i < 2; ++i)
    b.add("b");
  b.add("", 5);  // has not reported
  b.add("b", 4); // is not there yet
  EXPECT_FALSE(b.compare().minority) << "two of five";
  b.add("b");
  b.add("b");
  EXPECT_TRUE(b.compare().minority) << "four of seven";
}

TEST(ParameterVote, DoesNotCountPeersThatStillDownload) {
  ballots b;
  b.add("b").claim.ready = false;
  EXPECT_EQ(b.compare().found, "");
  EXPECT_EQ(b.it.differing(), 0U);
}

/// Of values that differ from those of `near(…, 0)` by `distance`, relative to their length.
parameter_sketch near(std::uint64_t rounding, double distance) {
  parameter_sketch of{rounding};
  of.sums[3] = 1;
  of.sums[7] = static_cast<float>(distance);
  return of;
}
constexpr double rounding_error = parameter_vote::rounding_max / 4;
constexpr double an_update = parameter_vote::rounding_max * 4;

TEST(ParameterVote, PeersThatRoundDifferentlyHoldTheSameUpToRounding) {
  ballots b;
  b.it.hold(epoch_id{5}, sha256("a"), near(1, 0));
  b.add("b").sketch = near(2, rounding_error);
  b.add("c").sketch = near(2, 2 * rounding_error); // it began with another one's rounding
  auto all = b.compare();
  EXPECT_FALSE(all.minority);
  EXPECT_EQ(all.found, "equal");
  EXPECT_EQ(b.it.differing(), 0U);
}

TEST(ParameterVote, AmongPeersThatRoundAlikeABitIsADifference) {
  for (std::uint64_t theirs : {1U, 0U}) {
    ballots b;
    b.it.hold(epoch_id{5}, sha256("a"), near(1, 0));
    for (int i = 0; i < 2; ++i)
      b.add("b").sketch = near(theirs, rounding_error);
    EXPECT_TRUE(b.compare().minority);
    EXPECT_EQ(b.it.differing(), 2U);
  }
}

TEST(ParameterVote, OfPeersThatRoundDifferentlyOneThatMissedAnUpdateGivesWay) {
  auto minority = [](double ours, std::initializer_list<double> theirs) {
    ballots b;
    b.it.hold(epoch_id{5}, sha256("a"), near(1, ours));
    int others = 0;
    for (auto distance : theirs)
      b.add("b" + std::to_string(++others)).sketch = near(2, distance);
    return b.compare().minority;
  };
  EXPECT_TRUE(minority(an_update, {0, rounding_error}));
  EXPECT_FALSE(minority(0, {rounding_error, an_update}));
}

TEST(ParameterVote, GivesUpParametersThatAreNotFiniteHoweverManyHoldThem) {
  ballots b;
  b.it.hold(epoch_id{5}, not_finite);
  EXPECT_FALSE(b.compare().minority) << "there is nothing else";
  b.add("not finite");
  b.add("not finite");
  b.add("a");
  b.add("");
  EXPECT_TRUE(b.compare().minority);
}

} // namespace
} // namespace waggle
