#include "tests/actors/group_helper/group_helper_fixture.hpp"

namespace waggle::testing {
namespace {

TEST_F(GroupHelper, SaysThatItIsThereAndFoundsNothing) {
  pass(1s);
  ASSERT_FALSE(reports.empty());
  EXPECT_TRUE(reports.back().claim.auxiliary);
  EXPECT_EQ(reports.back().claim.group_size, 0U);
  EXPECT_FALSE(reports.back().claim.ready);
  auto said = reports.size();
  pass(1s);
  EXPECT_EQ(reports.size(), said) << "nothing changed";
  pass(30s);
  EXPECT_GT(reports.size(), said) << "reports expire";
  EXPECT_TRUE(entered.empty());
}

TEST_F(GroupHelper, CallsTheRoundWhenItsClientsHaveEnoughSamples) {
  help_two();
  see({client(2, "a", 4, 3, 60), client(3, "a", 4, 3, 39)});
  EXPECT_TRUE(asked.empty());
  see({client(2, "a", 4, 3, 60), client(3, "a", 4, 3, 40)});
  ASSERT_EQ(asked.size(), 1U);
  EXPECT_TRUE(asked.front().call);
  EXPECT_EQ(asked.front().values, nullptr);
  EXPECT_EQ(asked.front().weight, 0);
  EXPECT_EQ(asked.front().epoch, epoch_id{4});
  tell(helper, round_called{epoch_id{4}});
  EXPECT_EQ(asked.size(), 1U) << "it is in the round already";
  end_round();
  EXPECT_EQ(reports.back().epoch, epoch_id{5});
  EXPECT_EQ(reports.back().claim.past.work, 210U);
  EXPECT_EQ(reports.back().claim.past.branch, sha256("a"));
}

TEST_F(GroupHelper, TakesPartWhenAMemberCallsAndPassesTheCallOn) {
  help_two();
  tell(helper, round_called{epoch_id{3}});
  EXPECT_TRUE(asked.empty()) << "the call is for another epoch";
  tell(helper, round_called{epoch_id{4}});
  ASSERT_EQ(asked.size(), 1U);
  EXPECT_TRUE(asked.front().call);
}

TEST_F(GroupHelper, FollowsItsGroupIntoAForkAlsoBeforeTheOthersSaySo) {
  help_two();
  tell(helper, round_called{epoch_id{4}});
  end_round(false); // its name is larger, and the members' last reports name the old branch
  EXPECT_NE(reports.back().claim.past.branch, sha256("a"));
  EXPECT_EQ(reports.back().claim.past.parent, sha256("a"));
}

TEST_F(GroupHelper, AfterARoundThatFailedItIsOutsideAndTriesAgain) {
  help_two();
  tell(helper, round_called{epoch_id{4}});
  group_round failed;
  failed.report.why = {ec::lost_quorum, "test"};
  end_round(failed);
  EXPECT_EQ(reports.back().claim.group_size, 0U);
  see({client(2, "b", 4, 1), client(3, "c", 4, 1)});
  pass(1s);
  EXPECT_EQ(entered.size(), 2U);
}

// -- the state ------------------------------------------------------------------------------------

TEST_F(GroupHelper, PassesOnTheStateOfAClient) {
  help_two();
  EXPECT_TRUE(reports.back().claim.ready);
  hold_state("a", 4);
  auto got = ask<state_snapshot>(helper, get_state_snapshot{sha256("a"), epoch_id{4}});
  EXPECT_EQ(got->epoch, epoch_id{4});
  EXPECT_EQ(got->past.branch, sha256("a"));
  EXPECT_EQ(got->state->size(), image.size);
  EXPECT_EQ(exported(*ctx.metrics, "waggle_state_downloads_total{outcome=\"complete\""), 1);
  ASSERT_EQ(opened.size(), 1U);
  EXPECT_EQ(opened.front().branch, sha256("a"));
  EXPECT_EQ(opened.front().epoch_min, epoch_id{4});
  ASSERT_TRUE(ask<state_snapshot>(helper, get_state_snapshot{sha256("a"), epoch_id{4}}).ok());
  EXPECT_EQ(opened.size(), 1U) << "downloaded once for all requests of an epoch";
  pass(31s);
  ASSERT_TRUE(ask<state_snapshot>(helper, get_state_snapshot{sha256("a"), epoch_id{4}}).ok());
  EXPECT_EQ(opened.size(), 2U) << "the state is dropped after a while";
}

TEST_F(GroupHelper, AStateThatIsTooLargeForTheGroupsVectorsIsNotDownloaded) {
  help_two();
  auto known = group_of(4, {2, 3});
  known.elements = 25;
  tell(helper, known);
  hold_state("a", 4);
  EXPECT_TRUE(ask<state_snapshot>(helper, get_state_snapshot{sha256("a"), epoch_id{4}}).ok());
  tell(helper, known);
  image = copy_to_payload(std::vector<std::byte>(2_MiB));
  image_epoch = epoch_id{5};
  auto got = ask<state_snapshot>(helper, get_state_snapshot{sha256("a"), epoch_id{5}});
  EXPECT_EQ(got.error().code, ec::oversize);
}

// Waiting peers ask another donor, and readers of the next group do not wait for it.
TEST_F(GroupHelper, ADownloadEndsWithTheGroupThatItWasFor) {
  help_two();
  silent = true;
  auto waiting = ask_later<state_snapshot>(helper, get_state_snapshot{sha256("a"), epoch_id{4}});
  EXPECT_FALSE(waiting.answered());
  tell(helper, round_called{epoch_id{4}});
  group_round failed;
  failed.report.why = {ec::lost_quorum, "test"};
  end_round(failed);
  ASSERT_TRUE(waiting.answered());
  EXPECT_EQ(waiting.get().error().code, ec::not_ready);
  EXPECT_EQ(exported(*ctx.metrics, "waggle_state_downloads_total{outcome=\"failed\""), 1);

  silent = false;
  group = group_of(4, {2});
  see({client(2, "a", 4, 1)});
  pass(1s);
  ASSERT_EQ(entered.size(), 2U);
  hold_state("a", 4);
  EXPECT_TRUE(ask<state_snapshot>(helper, get_state_snapshot{sha256("a"), epoch_id{4}}).ok());
}

TEST_F(GroupHelper, GivesNoStateThatIsNotOfItsGroup) {
  auto refused = [&](const std::string& past, std::uint64_t epoch) {
    auto got = ask<state_snapshot>(helper, get_state_snapshot{sha256(past), epoch_id{epoch}});
    return got.ok() ? ec::none : got.error().code;
  };
  EXPECT_EQ(refused("a", 4), ec::not_ready);
  help_two();
  EXPECT_EQ(refused("b", 4), ec::wrong_run);
  EXPECT_EQ(refused("a", 1'000'000), ec::epoch_mismatch);
  EXPECT_EQ(refused("a", 4), ec::unreachable) << "no member serves a state";
  hold_state("another", 4); // of another history, although the client claims ours
  EXPECT_EQ(refused("a", 4), ec::wrong_run);
  auto bytes = std::vector<std::byte>(image.view().begin(), image.view().end());
  bytes.back() ^= std::byte{1};
  image = copy_to_payload(bytes);
  EXPECT_EQ(refused("a", 4), ec::hash_mismatch);
}

} // namespace
} // namespace waggle::testing
