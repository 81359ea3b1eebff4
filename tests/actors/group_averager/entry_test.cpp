// Peers that enter a group through others, which may be silent.

#include "tests/actors/group_averager/group_averager_fixture.hpp"

namespace waggle::testing {
namespace {

using ::testing::ElementsAre;

TEST_F(GroupAverager, ASilentCandidateIsGivenUpAfterTheRequestTimeout) { // --request-timeout
  for (milliseconds limit : {300ms, 4'000ms}) {
    request_timeout = limit;
    auto& mute = add();
    auto& leader = add();
    auto& enters = add();
    silent = {mute.ctx.record.id};
    ASSERT_TRUE(found(leader).ok());
    asked.clear();
    auto entered = enter(enters, {&mute, &leader});
    pass(limit - 1ms);
    EXPECT_THAT(asked, ElementsAre(mute.ctx.record.id)) << limit.count() << " ms";
    EXPECT_FALSE(entered.answered());
    pass(1ms);
    EXPECT_THAT(asked, ElementsAre(mute.ctx.record.id, leader.ctx.record.id));
    EXPECT_TRUE(entered.get().ok()) << limit.count() << " ms";
  }
}

} // namespace
} // namespace waggle::testing
