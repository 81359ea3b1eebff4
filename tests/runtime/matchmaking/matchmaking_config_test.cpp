#include "runtime/matchmaking/matchmaking_config.hpp"

#include <functional>
#include <limits>
#include <map>
#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

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
  EXPECT_THAT(matchmaking_warning(slow).value_or(""), ::testing::HasSubstr("--request-timeout"));
}

// -- modes --------------------------------------------------------------------------------------

TEST(MatchmakingConfig, APeerWithoutAPortIsAClientWhateverElseItIsToldToBe) {
  for (auto mode : {member_mode::node, member_mode::auxiliary})
    expect_refused(
      "mode", [=](auto& c) { c.mode = mode; }, true);
  EXPECT_TRUE(check_matchmaking_config(with([](auto& c) { c.mode = member_mode::client; }), true));
  EXPECT_TRUE(check_matchmaking_config(with([](auto& c) { c.mode = member_mode::client; }), false));
}

TEST(MatchmakingConfig, OnlyAnAuxiliaryJoinsBesideTheMembers) {
  matchmaking_config config{.extra = true};
  EXPECT_EQ(check_matchmaking_config(config, false).error().code, ec::bad_config);
  config.mode = member_mode::auxiliary;
  EXPECT_TRUE(check_matchmaking_config(config, false));
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
    {"check_share", [](auto& c) { c.reduce_by.check_share = 0.5; }},
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

} // namespace
} // namespace waggle
