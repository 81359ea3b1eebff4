// Peers whose configurations differ in what a group must share.

#include <functional>

#include "tests/actors/matchmaker/matchmaker_fixture.hpp"

namespace waggle {
namespace {

using change = std::function<void(matchmaking_config&)>;

matchmaking_config with(const change& what) {
  matchmaking_config config;
  what(config);
  return config;
}

class MatchmakerConfig : public matchmaker_fixture {};

TEST_F(MatchmakerConfig, PeersThatShareNotEverythingNeverMeetAndKnowWhy) {
  auto a = wire_up(1);
  auto b = wire_up(2, with([](auto& c) { c.reduce_by.faulty_max = 1; }));
  connect(a, b);
  auto first = find(a, search(2s, 2));
  auto second = find(b, search(2s, 2));
  pass(2100ms);
  EXPECT_EQ(first.get().error().code, ec::schema_mismatch);
  EXPECT_EQ(second.get().error().code, ec::schema_mismatch);
}

TEST_F(MatchmakerConfig, OnlyMeetingInTheTableBothSidesLearnThatTheySpeakOfDifferentThings) {
  auto a = wire_up(1);
  auto b = wire_up(2, with([](auto& c) { c.min_vector_size = 7; }));
  auto first = find(a, search(2s, 2));
  pass(20ms);
  auto second = find(b, search(2s, 2)); // it asks the one that declared before it
  pass(2100ms);
  EXPECT_EQ(second.get().error().code, ec::schema_mismatch);
  EXPECT_EQ(first.get().error().code, ec::schema_mismatch);
  EXPECT_THAT(first.get().error().detail, ::testing::HasSubstr("turned away (schema_mismatch)"));
}

TEST_F(MatchmakerConfig, AFailedSearchIsLoggedWithKeyAndReason) {
  auto a = start(1);
  find(a, search(1s));
  pass(1100ms);
  EXPECT_THAT(lines.str(),
              ::testing::AllOf(::testing::HasSubstr("[info]"),
                               ::testing::HasSubstr("vector.0b: could not find a group in 1.0 s: "
                                                    "0 candidates")));
}

TEST_F(MatchmakerConfig, AnAuxiliaryMayLeadAndReduce) {
  auto a = wire_up(1, with([](auto& c) { c.mode = member_mode::auxiliary; }));
  auto b = wire_up(2);
  connect(a, b);
  auto first = find(a, search(10s, 2));
  pass(20ms);
  auto second = find(b, search(10s, 2));
  pass(1s);
  ASSERT_TRUE(first.get());
  ASSERT_TRUE(second.get());
  auto plan = second.get()->plan;
  EXPECT_EQ(plan.members[0].peer.id, a.ctx.record.id);
  EXPECT_EQ(plan.members[0].mode, member_mode::auxiliary);
  EXPECT_GT(plan.shares[0], 0u);
}

} // namespace
} // namespace waggle
