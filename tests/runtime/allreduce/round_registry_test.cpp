#include "runtime/allreduce/round_registry.hpp"

#include <gtest/gtest.h>

namespace waggle {
namespace {

inbound_event word_of(std::uint8_t round) {
  wire::round_prepared what;
  what.round.bytes[0] = std::byte{round};
  return {{}, what, {}, nullptr};
}

TEST(RoundRegistry, KeepsNoMoreForUnknownRoundsThanItsLimit) {
  round_registry::limits limits;
  limits.parked_events_max = 2;
  round_registry rounds{limits, [](const peer_record&, wire::event) {}};
  EXPECT_TRUE(rounds.deliver(word_of(1), {}));
  EXPECT_TRUE(rounds.deliver(word_of(2), {}));
  EXPECT_FALSE(rounds.deliver(word_of(3), {})) << "the caller counts what was dropped";
  EXPECT_EQ(rounds.forget_old(steady_time{} + limits.parked_for), 2U);
  EXPECT_TRUE(rounds.deliver(word_of(3), {})) << "there is room again";
}

TEST(RoundRegistry, AnswersATakeoverOfARoundThatItNeverHeardOf) {
  std::vector<wire::event> said;
  round_registry rounds{
    {}, [&](const peer_record&, wire::event what) { said.push_back(std::move(what)); }};
  wire::round_takeover what;
  what.round.bytes[0] = std::byte{9};
  EXPECT_TRUE(rounds.deliver({{}, what, {}, nullptr}, {}));
  ASSERT_EQ(said.size(), 1U);
  EXPECT_FALSE(std::get<wire::round_standing>(said[0]).knows_view) << "we promise nothing";
}

} // namespace
} // namespace waggle
