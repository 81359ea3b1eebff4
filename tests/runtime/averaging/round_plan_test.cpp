#include <gtest/gtest.h>

#include "tests/runtime/averaging/plans.hpp"

namespace waggle {
namespace {

void expect_refused(const round_plan& plan, const char* why) {
  auto outcome = validate_plan(plan);
  ASSERT_FALSE(outcome.ok()) << why;
  EXPECT_EQ(outcome.error().code, ec::protocol_violation) << why;
  EXPECT_FALSE(outcome.error().detail.empty()) << why;
}

TEST(RoundPlan, AProperPlanIsAccepted) {
  EXPECT_TRUE(validate_plan(plan_for(1)).ok());
  EXPECT_TRUE(validate_plan(plan_for(64)).ok());
}

TEST(RoundPlan, EveryBrokenPlanIsRefusedWithAReason) {
  auto with = [](auto change) {
    auto plan = plan_for(3);
    change(plan);
    return plan;
  };
  expect_refused(with([](auto& p) { p.id = {}; }), "no id");
  expect_refused(with([](auto& p) {
                   p.members.clear();
                   p.shares.clear();
                 }),
                 "no members");
  expect_refused(plan_for(65), "too many members");
  expect_refused(with([](auto& p) { p.shares.pop_back(); }), "a share is missing");
  expect_refused(with([](auto& p) { p.codecs[0].codec = static_cast<codec_id>(77); }),
                 "unknown codec");
  expect_refused(with([](auto& p) { p.codecs = {{29, codec_id::none}}; }), "codecs for less");
  expect_refused(with([](auto& p) {
                   p.codecs = {{29, codec_id::none}, {2, codec_id::float16}};
                 }),
                 "codecs for more");
  expect_refused(with([](auto& p) { p.codecs.push_back({0, codec_id::none}); }), "an empty run");
  expect_refused(with([](auto& p) { p.reduce_by.how = static_cast<aggregator>(9); }),
                 "unknown aggregator");
  expect_refused(with([](auto& p) { p.gathered.pop_back(); }), "a gathered text is missing");
  expect_refused(with([](auto& p) { p.gathered[1].assign(gather_bytes_max + 1, 'x'); }),
                 "a gathered text is too long");
  expect_refused(with([](auto& p) {
                   p.elements = 0;
                   p.shares = {0, 0, 0};
                   p.codecs.clear();
                 }),
                 "nothing to average");
  expect_refused(with([](auto& p) { p.elements = plan_elements_max + 1; }), "too many elements");
  expect_refused(with([](auto& p) { p.part_elements = 0; }), "empty parts");
  expect_refused(with([](auto& p) { p.part_elements = part_elements_max + 1; }), "parts too large");
  expect_refused(with([](auto& p) { p.min_contributors = 0; }), "no contributors asked for");
  expect_refused(with([](auto& p) { p.min_contributors = 65; }),
                 "more contributors than a group may have");
  expect_refused(with([](auto& p) { p.members[2] = p.members[1]; }), "a member twice");
  expect_refused(with([](auto& p) { ++p.shares[0]; }), "shares exceed the vector");
  expect_refused(with([](auto& p) { --p.shares[0]; }), "shares do not cover the vector");
  expect_refused(with([](auto& p) { p.shares = {~0ULL, 16, 15}; }), "a sum that wraps around");
  expect_refused(with([](auto& p) { p.members[1].mode = member_mode::client; }),
                 "a client that reduces");
  expect_refused(with([](auto& p) {
                   p.members[0].mode = member_mode::client;
                   p.shares = {0, 15, 15};
                 }),
                 "a client that leads");
  expect_refused(with([](auto& p) {
                   p.elements = plan_elements_max;
                   p.shares = {plan_elements_max, 0, 0};
                   p.codecs = {{plan_elements_max, codec_id::none}};
                   p.part_elements = 1;
                 }),
                 "too many parts");
}

} // namespace
} // namespace waggle
