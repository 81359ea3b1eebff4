// An auxiliary that joins groups beside their members.

#include "tests/actors/matchmaker/matchmaker_fixture.hpp"

namespace waggle {
namespace {

struct MatchmakerExtra : matchmaker_fixture {
  static matchmaking_config pairs(const std::string& bits = "") {
    return {.prefix = "p", .initial_group_bits = bits, .target_group_size = 2};
  }
  static matchmaking_config extra() {
    auto config = pairs();
    config.mode = member_mode::auxiliary;
    config.extra = true;
    return config;
  }
  static std::size_t asked(const peer& p, const peer& other) {
    return static_cast<std::size_t>(
      std::count_if(p.around->calls.begin(), p.around->calls.end(),
                    [&](const call_peer& call) { return call.to.id == other.ctx.record.id; }));
  }
};

TEST_F(MatchmakerExtra, IsCalledBySearchesThatBeginLater) {
  auto a = wire_up(1, pairs());
  auto b = wire_up(2, pairs());
  auto helper = wire_up(3, extra());
  connect(a, helper);
  connect(a, b);
  auto helped = find(helper, search(60s));
  EXPECT_EQ(asked(helper, a), 1U);
  auto first = find(a, search(10s, 2));
  EXPECT_EQ(asked(a, helper), 1U) << "at once";
  EXPECT_EQ(asked(helper, a), 2U) << "in turn, before its next try is due";
  pass(20ms); // a leads
  auto second = find(b, search(10s, 2));
  pass(1s);
  ASSERT_TRUE(first.get()) << to_string(first.get().error());
  ASSERT_TRUE(second.get());
  ASSERT_TRUE(helped.get());
  auto plan = first.get()->plan;
  EXPECT_EQ(plan.members.size(), 3U);
  EXPECT_EQ(plan.members[0].mode, member_mode::node);
  EXPECT_EQ(helped.get()->plan.id, plan.id);
  EXPECT_TRUE(helper.around->stored.empty()) << "it declares nothing";
}

TEST_F(MatchmakerExtra, JoinsInAnyBucketAndTakesNone) {
  auto a = wire_up(1, pairs("01"));
  auto b = wire_up(2, pairs("01"));
  auto helper = wire_up(3, extra());
  connect(a, helper);
  connect(b, helper);
  auto first = find(a, search(10s));
  auto helped = find(helper, search(60s));
  pass(20ms);
  auto second = find(b, search(10s));
  pass(2s);
  ASSERT_TRUE(first.get());
  ASSERT_TRUE(second.get());
  ASSERT_TRUE(helped.get());
  EXPECT_EQ(first.get()->plan.members.size(), 3U);
  for (const auto* p : {&a, &b, &helper})
    find(*p, search(1s));
  EXPECT_EQ(bits_of(helper), "?") << "it declares itself nowhere";
  std::set<std::string> taken{bits_of(a), bits_of(b)};
  EXPECT_EQ(taken, (std::set<std::string>{"10", "11"})) << "the places of two members";
}

TEST_F(MatchmakerExtra, CountsTowardNoLoad) {
  auto config = pairs();
  config.elastic_bits = true;
  auto a = wire_up(1, config);
  auto helper_config = extra();
  helper_config.elastic_bits = true;
  auto helper = wire_up(3, helper_config);
  connect(a, helper);
  auto helped = find(helper, search(60s));
  auto alone = find(a, search(1s));
  pass(2s);
  EXPECT_FALSE(alone.get());
  ASSERT_FALSE(a.around->stored.empty());
  std::vector<record> loads;
  for (const auto& entry : a.around->stored)
    if (entry.name == "p.load")
      loads.push_back(entry);
  ASSERT_EQ(loads.size(), 1U);
  EXPECT_EQ(loads[0].value, (bucket_load{0, 1}.text()));
  for (const auto& entry : helper.around->stored)
    EXPECT_NE(entry.name, "p.load");
}

TEST_F(MatchmakerExtra, ThatNoGroupNeedsIsNoNews) {
  auto helper = wire_up(3, extra());
  auto helped = find(helper, search(1s));
  pass(2s);
  EXPECT_FALSE(helped.get());
  EXPECT_EQ(lines.str(), "");
}

} // namespace
} // namespace waggle
