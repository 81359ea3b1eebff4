// How long a search waits for others, and when its group begins.

#include "tests/actors/matchmaker/matchmaker_fixture.hpp"

namespace waggle {
namespace {

class MatchmakerTimes : public matchmaker_fixture {
protected:
  /// Peers that nobody else knows: the next ones of each call.
  std::uint64_t next_seed = 1;
};

// --request-timeout
TEST_F(MatchmakerTimes, ASilentCandidateIsGivenUpAfterTheRequestTimeout) {
  for (milliseconds limit : {300ms, 3'000ms}) {
    matchmaking_config config{.request_timeout = limit};
    auto us = start(next_seed++, config);
    us.around->peer_says = [](const auto&) { return std::nullopt; };
    for (int i = 0; i < 2; ++i)
      tell(us.maker, peer_connected{testing::test_peer(next_seed++)});
    auto group = find(us, search(20s));
    pass(limit - 1ms);
    ASSERT_EQ(us.around->calls.size(), 1U) << limit.count() << " ms";
    pass(1ms);
    ASSERT_EQ(us.around->calls.size(), 2U) << limit.count() << " ms";
    EXPECT_NE(us.around->calls[0].to.id, us.around->calls[1].to.id);
  }
}

TEST_F(MatchmakerTimes, ALeaderThatDoesNotBeginIsLeftAfterTheRequestTimeout) {
  for (milliseconds limit : {300ms, 3'000ms}) {
    matchmaking_config config{.request_timeout = limit};
    auto us = start(next_seed++, config);
    us.around->peer_says = [](const auto&) { return result<wire::join_reply>{wire::join_reply{}}; };
    tell(us.maker, peer_connected{testing::test_peer(next_seed++)});
    auto group = find(us, search(20s));
    auto left = [&] { return told<wire::leave_group>(us).size(); };
    pass(config.min_matchmaking_time + limit - 1ms);
    EXPECT_EQ(left(), 0U) << limit.count() << " ms";
    pass(21ms); // the matchmaker looks at the clock every 20 ms
    EXPECT_EQ(left(), 1U) << limit.count() << " ms";
  }
}

TEST_F(MatchmakerTimes, ATableThatDoesNotAnswerIsAskedAgainAfterTheRequestTimeout) {
  for (milliseconds limit : {300ms, 3'000ms}) {
    matchmaking_config config{.request_timeout = limit};
    auto us = start(next_seed++, config);
    us.around->finds = false;
    auto group = find(us, search(20s));
    pass(limit + 1s - 1ms);
    EXPECT_EQ(us.around->unanswered.size(), 1U) << limit.count() << " ms";
    pass(600ms); // the declarations are read every 500 ms
    EXPECT_EQ(us.around->unanswered.size(), 2U) << limit.count() << " ms";
  }
}

} // namespace
} // namespace waggle
