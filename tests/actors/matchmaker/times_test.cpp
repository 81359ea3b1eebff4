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
TEST_F(MatchmakerTimes, ATableThatDoesNotAnswerIsAskedAgainAfterTheRequestTimeout) {
  for (milliseconds limit : {300ms, 3'000ms}) {
    matchmaking_config config;
    config.request_timeout = limit;
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
