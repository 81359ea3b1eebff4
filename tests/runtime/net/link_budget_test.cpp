#include "runtime/net/link_budget.hpp"

#include <cstring>
#include <vector>

#include <gtest/gtest.h>
#include <sys/mman.h>

namespace waggle::net {
namespace {

struct LinkBudget : testing::Test {
  std::shared_ptr<link_budget> link() {
    return std::make_shared<link_budget>([this](bool on) { held.push_back(on); }, common, limits);
  }

  steady_time now;
  link_budget::limits limits;
  std::shared_ptr<stranger_budget> common =
    std::make_shared<stranger_budget>(stranger_budget::limits{work{1'000}, 100});
  std::vector<bool> held;
};

TEST_F(LinkBudget, HoldsALinkWhileItsMessagesWait) {
  limits.waiting_bytes_max = 1'000;
  limits.message_overhead = 100;
  auto budget = link();
  auto first = budget->admit(300);
  auto second = budget->admit(500);
  EXPECT_TRUE(held.empty()) << "exactly as much as may wait";
  auto third = budget->admit(0);
  EXPECT_EQ(held, (std::vector{true}));
  auto copy = third;
  third.reset();
  EXPECT_TRUE(budget->held()) << "a copy of the message exists";
  copy.reset();
  EXPECT_EQ(held, (std::vector{true, false}));
}

TEST_F(LinkBudget, EachStrangersOwnWorkIsDoneHoweverMuchOthersSend) {
  limits.work_per_second = work{100};
  auto flood = link();
  for (int i = 0; i < 20; ++i)
    flood->charge(work{100}, now);
  EXPECT_TRUE(flood->held());
  auto modest = link();
  modest->charge(work{100}, now);
  EXPECT_FALSE(modest->held()) << "within its own work, although the common one is used up";
  modest->charge(work{10}, now);
  EXPECT_TRUE(modest->held());
  modest->retry(now + 1s);
  EXPECT_FALSE(modest->held());
  flood->retry(now + 1s);
  EXPECT_TRUE(flood->held()) << "it owes the work of several seconds";
  flood->retry(now + 10s);
  EXPECT_FALSE(flood->held());
}

TEST_F(LinkBudget, ABodyOfAStrangerWaitsUntilThereIsMemory) {
  auto first = link();
  auto second = link();
  auto body = first->body(80);
  EXPECT_EQ(common->bodies.now(), 80U);
  auto waiting = second->body(30);
  ASSERT_NE(waiting, nullptr) << "where the bytes go that were read with the announcement";
  EXPECT_FALSE(first->held());
  EXPECT_TRUE(second->held());
  second->retry(now);
  EXPECT_TRUE(second->held());
  body.reset();
  EXPECT_FALSE(second->held());
  EXPECT_EQ(common->bodies.now(), 30U);
  waiting.reset();
  EXPECT_EQ(common->bodies.now(), 0U);
}

TEST_F(LinkBudget, ABodyThatIsGivenUpWhileItWaitsReturnsNothing) {
  auto first = link();
  auto second = link();
  auto body = first->body(80);
  auto waiting = second->body(30);
  waiting.reset();
  EXPECT_FALSE(second->held());
  EXPECT_EQ(common->bodies.now(), 80U);
}

TEST_F(LinkBudget, ABodyTakesNoMemoryBeforeItIsReadNorAfterwards) {
  common = std::make_shared<stranger_budget>();
  auto budget = link();
  unsigned char resident = 1;
  for (int i = 0; i < 2; ++i) { // malloc would hand out again what was written to before
    auto body = budget->body(256_KiB);
    auto* second_page = body.get() + 4_KiB;
    ASSERT_EQ(::mincore(second_page, 1, &resident), 0);
    EXPECT_EQ(resident & 1, 0);
    std::memset(body.get(), 1, 256_KiB);
    body.reset();
    EXPECT_EQ(::mincore(second_page, 1, &resident), -1) << "the system has it back";
  }
}

TEST_F(LinkBudget, AWelcomeBodyDoesNotCount) {
  auto members = link();
  auto strangers = link();
  auto first = members->body(500, [] { return true; });
  EXPECT_FALSE(members->held());
  EXPECT_EQ(common->bodies.now(), 0U);
  auto second = strangers->body(80, [] { return false; });
  EXPECT_EQ(common->bodies.now(), 80U);
  first.reset();
  EXPECT_EQ(common->bodies.now(), 80U);
}

TEST_F(LinkBudget, ABodyThatWaitsIsReadOnceItIsWelcome) {
  auto first = link();
  auto second = link();
  auto body = first->body(80);
  bool welcome = false; // the plan of its round has not arrived yet
  auto waiting = second->body(80, [&] { return welcome; });
  second->retry(now);
  EXPECT_TRUE(second->held());
  welcome = true;
  second->retry(now);
  EXPECT_FALSE(second->held());
  EXPECT_EQ(common->bodies.now(), 80U);
  waiting.reset();
  EXPECT_EQ(common->bodies.now(), 80U);
}

TEST_F(LinkBudget, MemoryThatIsReturnedGoesToTheOneThatWaitsTheLongest) {
  auto first = link();
  auto second = link();
  auto third = link();
  auto body = first->body(80);
  auto earlier = second->body(80);
  auto later = third->body(80);
  body.reset();
  EXPECT_FALSE(second->held());
  EXPECT_TRUE(third->held());
  earlier.reset();
  EXPECT_FALSE(third->held());
}

TEST_F(LinkBudget, AMembersBodiesNoLongerCount) {
  auto first = link();
  auto second = link();
  auto third = link();
  auto kept = first->body(90); // a round keeps it, and waits for the next one
  bool begun = false;
  auto needed = second->body(90, [&] { return begun; });
  auto foreign = third->body(90);
  EXPECT_TRUE(second->held());
  begun = true;
  common->offer(true);
  EXPECT_FALSE(second->held());
  EXPECT_TRUE(third->held());
  first->become_member();
  EXPECT_FALSE(third->held());
  EXPECT_EQ(common->bodies.now(), 90U) << "the third one's";
  kept.reset();
  EXPECT_EQ(common->bodies.now(), 90U) << "not returned twice";
  auto next = first->body(90);
  EXPECT_FALSE(first->held());
}

TEST_F(LinkBudget, ALinkThatBecomesAMembersIsReadAtOnce) {
  auto first = link();
  auto second = link();
  auto body = first->body(80);
  auto waiting = second->body(80);
  EXPECT_TRUE(second->held());
  second->become_member();
  EXPECT_FALSE(second->held());
  waiting.reset();
  EXPECT_EQ(common->bodies.now(), 80U);
}

TEST_F(LinkBudget, LongHeadersShareTheMemoryOfBodies) {
  auto first = link();
  auto second = link();
  auto header = first->room(90);
  auto body = second->body(30);
  EXPECT_TRUE(second->held());
  header.reset();
  EXPECT_FALSE(second->held());
  EXPECT_EQ(common->bodies.now(), 30U);
  auto next = first->room(90);
  EXPECT_TRUE(first->held());
}

TEST_F(LinkBudget, AStrangerThatReadsNoAnswersGetsNoMore) {
  limits.unread_bytes_max = 1'000;
  limits.queue_share = 100;
  auto budget = link();
  budget->unread(1'000, 0);
  EXPECT_FALSE(budget->held());
  EXPECT_TRUE(budget->may_answer(5'000, 0)) << "exactly as much as may be unread, and one more";
  budget->unread(1'001, 0);
  EXPECT_TRUE(budget->held());
  EXPECT_FALSE(budget->may_answer(1, 0));
  budget->unread(0, 0);
  EXPECT_FALSE(budget->held());
  budget->unread(5'000, 0);
  budget->become_member();
  EXPECT_FALSE(budget->held());
  EXPECT_TRUE(budget->may_answer(5'000, 0));
}

TEST_F(LinkBudget, FullQueuesLeaveEachStrangerItsShare) {
  limits.queue_share = 100;
  limits.message_overhead = 0;
  common = std::make_shared<stranger_budget>(stranger_budget::limits{work{1'000}, 100, 1'000});
  auto flood = link();
  auto message = flood->admit(600);
  flood->unread(401, 0);
  EXPECT_TRUE(flood->held());
  EXPECT_FALSE(flood->may_answer(1, 0));
  auto modest = link();
  auto question = modest->admit(60);
  EXPECT_FALSE(modest->held());
  EXPECT_TRUE(modest->may_answer(100, 0));
  EXPECT_FALSE(modest->may_answer(101, 0)) << "more than its share";
  message.reset();
  EXPECT_FALSE(flood->held());
  EXPECT_TRUE(modest->may_answer(101, 0));
  auto again = modest->admit(600);
  EXPECT_TRUE(modest->held()) << "all have 1,061 bytes, and this one more than its share";
  flood->become_member();
  modest->retry(now);
  EXPECT_FALSE(modest->held()) << "what waits for members is not what strangers have";
  auto third = link();
  third->unread(900, 0);
  EXPECT_TRUE(third->held());
  modest.reset(); // its messages keep it alive
  again.reset();
  question.reset();
  third->retry(now);
  EXPECT_FALSE(third->held());
}

TEST_F(LinkBudget, PiecesOfStatesThatNobodyReadsAreNotPiledUp) {
  limits.unread_bodies_max = 500;
  limits.unread_bodies_share = 100;
  common = std::make_shared<stranger_budget>(stranger_budget::limits{work{1'000}, 100, 1'000, 600});
  auto first = link();
  first->unread(0, 400);
  EXPECT_TRUE(first->may_answer(10, 100));
  EXPECT_FALSE(first->may_answer(10, 101));
  EXPECT_TRUE(first->may_answer(10, 0)) << "other answers are small";
  auto second = link();
  second->unread(0, 201);
  EXPECT_FALSE(first->may_answer(10, 1)) << "all strangers together have more than their limit";
  auto third = link();
  EXPECT_TRUE(third->may_answer(10, 100)) << "its share";
  EXPECT_FALSE(third->may_answer(10, 101));
  second->become_member();
  EXPECT_TRUE(third->may_answer(10, 101));
  EXPECT_FALSE(second->may_answer(10, 300)) << "the limit of a link holds for members, too";
  first.reset();
  third->unread(0, 400);
  EXPECT_TRUE(third->may_answer(10, 100));
}

TEST_F(LinkBudget, LinksThatComeAndGoWhileTheyWaitLeaveNothing) {
  auto first = link();
  auto body = first->body(100);
  std::weak_ptr<link_budget> gone;
  for (int i = 0; i < 3; ++i) {
    auto visitor = link();
    auto waiting = visitor->body(50);
    EXPECT_TRUE(visitor->held());
    gone = visitor;
  }
  EXPECT_TRUE(gone.expired());
  auto second = link();
  auto waiting = second->body(60);
  body.reset();
  EXPECT_FALSE(second->held());
}

TEST_F(LinkBudget, AnAnswerWithALongHeaderThatWasAskedForDoesNotWait) {
  auto first = link();
  auto second = link();
  auto body = first->body(100);
  auto asked = second->room(50, [] { return true; });
  EXPECT_FALSE(second->held());
  auto unasked = second->room(50, [] { return false; });
  EXPECT_TRUE(second->held());
}

TEST_F(LinkBudget, SavesUpNoMoreThanOneSecond) {
  work_bucket bucket{work{100}};
  EXPECT_TRUE(bucket.take(work{100}, now));
  EXPECT_FALSE(bucket.take(work{1}, now));
  EXPECT_TRUE(bucket.take(work{50}, now + 500ms));
  EXPECT_FALSE(bucket.take(work{1}, now + 500ms));
  EXPECT_TRUE(bucket.take(work{100}, now + 24h));
  EXPECT_FALSE(bucket.take(work{1}, now + 24h));
}

} // namespace
} // namespace waggle::net
