#include "runtime/matchmaking/matchmaking_config.hpp"

#include <cmath>
#include <functional>
#include <limits>

#include "tests/actors/matchmaker/matchmaker_fixture.hpp"

namespace waggle {
namespace {

using change = std::function<void(matchmaking_config&)>;

matchmaking_config with(const change& what) {
  matchmaking_config config;
  what(config);
  return config;
}

// -- fields that are out of range ---------------------------------------------------------------

void expect_refused(const std::string& field, const change& what, bool client = false) {
  auto checked = check_matchmaking_config(with(what), client);
  ASSERT_FALSE(checked) << field;
  EXPECT_EQ(checked.error().code, ec::bad_config);
  EXPECT_THAT(checked.error().detail, ::testing::HasSubstr(field));
}

TEST(MatchmakingConfig, TheDefaultsAreFine) {
  EXPECT_TRUE(check_matchmaking_config({}, false));
  EXPECT_FALSE(matchmaking_warning({}));
}

TEST(MatchmakingConfig, NamesTheFieldThatIsOutOfRange) {
  using config = matchmaking_config;
  expect_refused("prefix", [](config& c) { c.prefix = ""; });
  expect_refused("prefix", [](config& c) { c.prefix = "a.b"; });
  expect_refused("initial_group_bits", [](config& c) { c.initial_group_bits = "01a"; });
  expect_refused("target_group_size", [](config& c) { c.target_group_size = 1; });
  expect_refused("min_group_size", [](config& c) { c.min_group_size = 0; });
  expect_refused("min_group_size", [](config& c) {
    c.target_group_size = 4;
    c.min_group_size = 5;
  });
  expect_refused("min_group_size", [](config& c) {
    c.target_group_size = 1000;
    c.min_group_size = round_members_max + 1;
  });
  expect_refused("min_contributors", [](config& c) { c.min_contributors = 0; });
  expect_refused("min_contributors", [](config& c) {
    c.target_group_size = 4;
    c.min_contributors = 5;
  });
  expect_refused("parts.largest", [](config& c) { c.parts.largest = 0; });
  expect_refused("parts.largest", [](config& c) { c.parts.largest = part_elements_max + 1; });
  expect_refused("min_matchmaking_time", [](config& c) { c.min_matchmaking_time = 0ms; });
  expect_refused("request_timeout", [](config& c) { c.request_timeout = -1ms; });
  expect_refused("alone_after", [](config& c) { c.alone_after = -1ms; });
  expect_refused("reduce_by", [](config& c) { c.reduce_by.how = static_cast<aggregator>(99); });
  for (double bad :
       {-1.0, std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity()})
    expect_refused("bandwidth", [=](config& c) { c.bandwidth = bad; });
}

TEST(MatchmakingConfig, AcceptsTheBoundsThemselves) {
  EXPECT_TRUE(check_matchmaking_config(with([](auto& c) {
                                         c.min_group_size = 1;
                                         c.target_group_size = 2;
                                         c.min_contributors = 2;
                                         c.bandwidth = 0;
                                         c.initial_group_bits = "0110";
                                         c.parts.largest = part_elements_max;
                                       }),
                                       false));
}

TEST(MatchmakingConfig, ARequestThatOutlivesTheSearchIsAWarning) {
  auto slow = with([](auto& c) { c.request_timeout = c.min_matchmaking_time; });
  EXPECT_TRUE(check_matchmaking_config(slow, false));
  EXPECT_THAT(matchmaking_warning(slow).value_or(""), ::testing::HasSubstr("request_timeout"));
}

// -- modes --------------------------------------------------------------------------------------

TEST(MatchmakingConfig, APeerWithoutAPortIsAClientWhateverElseItIsToldToBe) {
  for (auto mode : {member_mode::node, member_mode::auxiliary})
    expect_refused(
      "mode", [=](auto& c) { c.mode = mode; }, true);
  EXPECT_TRUE(check_matchmaking_config(with([](auto& c) { c.mode = member_mode::client; }), true));
  EXPECT_TRUE(check_matchmaking_config(with([](auto& c) { c.mode = member_mode::client; }), false));
}

TEST(MatchmakingConfig, ClientAndAuxiliaryExcludeEachOther) {
  EXPECT_EQ(*mode_of(false, false), member_mode::node);
  EXPECT_EQ(*mode_of(true, false), member_mode::client);
  EXPECT_EQ(*mode_of(false, true), member_mode::auxiliary);
  ASSERT_FALSE(mode_of(true, true));
  EXPECT_EQ(mode_of(true, true).error().code, ec::bad_config);
}

// -- the schema ---------------------------------------------------------------------------------

const codec_plan codecs{{100, codec_id::none}};

TEST(GroupSchema, CoversEverythingThatMembersMustShare) {
  auto base = group_schema({}, codecs);
  const std::map<std::string, change> changes{
    {"prefix", [](auto& c) { c.prefix = "other"; }},
    {"schema", [](auto& c) { c.schema.bytes[5] = std::byte{1}; }},
    {"aggregator", [](auto& c) { c.reduce_by.how = aggregator::median; }},
    {"faulty_max", [](auto& c) { c.reduce_by.faulty_max = 1; }},
    {"the largest part", [](auto& c) { c.parts.largest = 1000; }},
    {"who chooses the parts", [](auto& c) { c.parts.chosen = false; }},
    {"min_contributors", [](auto& c) { c.min_contributors = 2; }},
    {"min_vector_size", [](auto& c) { c.min_vector_size = 10; }},
    {"target_group_size", [](auto& c) { c.target_group_size = 8; }}};
  std::set<digest> all{base};
  for (const auto& [name, what] : changes) {
    EXPECT_NE(group_schema(with(what), codecs), base) << name;
    all.insert(group_schema(with(what), codecs));
  }
  EXPECT_EQ(all.size(), changes.size() + 1);
}

TEST(GroupSchema, CoversTheCodecsAndTheLength) {
  std::set<digest> all;
  for (const codec_plan& plan :
       {codecs, codec_plan{{101, codec_id::none}}, codec_plan{{100, codec_id::float16}},
        codec_plan{{50, codec_id::none}, {50, codec_id::float16}},
        codec_plan{{50, codec_id::float16}, {50, codec_id::none}}, codec_plan{}})
    EXPECT_TRUE(all.insert(group_schema({}, plan)).second);
}

TEST(GroupSchema, CoversTheVersionOfTheProtocol) {
  EXPECT_EQ(group_schema({}, codecs), group_schema({}, codecs, protocol_version));
  EXPECT_NE(group_schema({}, codecs), group_schema({}, codecs, protocol_version + 1));
}

TEST(GroupSchema, LeavesOutWhatIsEverybodysOwn) {
  auto base = group_schema({}, codecs);
  const std::map<std::string, change> changes{
    {"bits", [](auto& c) { c.initial_group_bits = "01"; }},
    {"mode", [](auto& c) { c.mode = member_mode::client; }},
    {"bandwidth", [](auto& c) { c.bandwidth = 5; }},
    {"min_group_size", [](auto& c) { c.min_group_size = 3; }},
    {"min_matchmaking_time", [](auto& c) { c.min_matchmaking_time = 1s; }},
    {"request_timeout", [](auto& c) { c.request_timeout = 1s; }},
    {"a target beyond the limit", [](auto& c) { c.target_group_size = round_members_max + 5; }}};
  for (const auto& [name, what] : changes)
    EXPECT_EQ(group_schema(with(what), codecs), base) << name;
}

// -- the actor's checks -------------------------------------------------------------------------

class MatchmakerConfig : public matchmaker_fixture {
protected:
  static auto differing() {
    return std::vector<change>{[](auto& c) { c.target_group_size = 8; },
                               [](auto& c) { c.min_vector_size = 7; },
                               [](auto& c) { c.prefix = "other"; },
                               [](auto& c) { c.parts.largest = 10; },
                               [](auto& c) { c.parts.chosen = false; },
                               [](auto& c) { c.min_contributors = 2; },
                               [](auto& c) { c.reduce_by.faulty_max = 1; },
                               [](auto& c) { c.schema.bytes[0] = std::byte{1}; }};
  }
};

TEST_F(MatchmakerConfig, PeersThatShareNotEverythingNeverMeetAndKnowWhy) {
  std::uint64_t seed = 1;
  for (const auto& what : differing()) {
    auto a = wire_up(seed++);
    auto b = wire_up(seed++, with(what));
    connect(a, b);
    auto first = find(a, search(2s, 2));
    auto second = find(b, search(2s, 2));
    pass(2100ms);
    EXPECT_EQ(first.get().error().code, ec::schema_mismatch) << seed;
    EXPECT_EQ(second.get().error().code, ec::schema_mismatch) << seed;
  }
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
                               ::testing::HasSubstr("vector.0b: nobody_declared: could not "
                                                    "find a group in 1.0 s: 0 candidates")));
}

TEST_F(MatchmakerConfig, ALonePeerGivesUpEarlyIfItShould) {
  auto a = start(1, with([](auto& c) { c.alone_after = 1s; }));
  auto group = find(a, search(20s));
  pass(1100ms);
  EXPECT_EQ(group.get().error().code, ec::nobody_declared);
}

TEST_F(MatchmakerConfig, AMatchmakerThatCannotWorkEndsAtOnce) {
  auto a = start(1, with([](auto& c) { c.prefix = "a.b"; }));
  EXPECT_FALSE(alive(a.maker));
  EXPECT_THAT(lines.str(), ::testing::HasSubstr("prefix"));
  EXPECT_TRUE(alive(start(2).maker));
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
