// In many groups, a trainer tells its averager when the next round is near.

#include "tests/actors/trainer/training_world.hpp"

namespace waggle::testing {
namespace {

struct ExpectedRounds : training_world {
  static constexpr auto window = 11ms;

  static training_config settings(milliseconds ahead = window) {
    auto config = defaults();
    config.strategy = "local-updates";
    config.many_groups = true;
    config.search_ahead = ahead;
    return config;
  }
  /// Two peers, which need 40 ms for an epoch.
  void add_two(milliseconds ahead = window) {
    add_started(settings(ahead));
    auto joins = settings(ahead);
    joins.join_timeout = 5s;
    add_started(joins);
    pass_until([&] { return all_at(5); });
  }
};

TEST_F(ExpectedRounds, AreAnnouncedOncePerEpochShortlyBeforeTheyBegin) {
  add_two();
  for (const auto& m : members) {
    ASSERT_GT(m->expected.size(), 2U);
    std::set<epoch_id> announced;
    for (const auto& round : m->expected) {
      ASSERT_TRUE(round.in.has_value());
      EXPECT_LE(*round.in, window);
      EXPECT_TRUE(round.deltas);
      EXPECT_TRUE(announced.insert(round.epoch).second) << "epoch " << round.epoch.value();
    }
    for (const auto& question : m->questions)
      announced.erase(question.epoch);
    EXPECT_LE(announced.size(), 1U) << "the round of the current epoch has not begun yet";
  }
}

TEST_F(ExpectedRounds, AreNotAnnouncedWhereTheSearchBeginsAtTheBoundary) {
  add_two(0ms);
  for (const auto& m : members)
    EXPECT_TRUE(m->expected.empty());
}

TEST_F(ExpectedRounds, AreNotAnnouncedByAPeerThatIsAlone) {
  auto& m = add_started(settings());
  pass_until([&] { return status_of(m).epoch.value() >= 5; });
  EXPECT_TRUE(m.expected.empty());
}

TEST_F(ExpectedRounds, AreNotAnnouncedAfterTheLastEpoch) {
  auto config = settings();
  config.max_epochs = 4;
  add_started(config);
  config.join_timeout = 5s;
  auto& m = add_started(config);
  pass_until([&] { return all_at(4); });
  pass(1s);
  ASSERT_FALSE(m.expected.empty());
  for (const auto& round : m.expected)
    EXPECT_LT(round.epoch, epoch_id{4});
}

TEST_F(ExpectedRounds, AreTakenBackWhenTheRunHasGoneOn) {
  add_two();
  auto& m = *members[0];
  auto before = m.expected.size();
  pass_until([&] { return m.expected.size() > before; });
  ASSERT_TRUE(m.expected.back().in.has_value());
  auto epoch = status_of(m).epoch;
  ASSERT_EQ(m.expected.back().epoch, epoch);
  auto next = epoch.next();
  groups[m.group] = next;
  tell(m.actor,
       group_view{true, next, branches.at(m.group), {m.ctx.record.id, members[1]->ctx.record.id}});
  EXPECT_EQ(status_of(m).epoch, next);
  EXPECT_FALSE(m.expected.back().in.has_value());
}

} // namespace
} // namespace waggle::testing
