#include "runtime/net/link_budget.hpp"

#include <vector>

#include <gtest/gtest.h>

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
  EXPECT_EQ(common->body_bytes(), 80U);
  auto waiting = second->body(30);
  ASSERT_NE(waiting, nullptr) << "where the bytes go that were read with the announcement";
  EXPECT_FALSE(first->held());
  EXPECT_TRUE(second->held());
  second->retry(now);
  EXPECT_TRUE(second->held());
  body.reset();
  second->retry(now);
  EXPECT_FALSE(second->held());
  EXPECT_EQ(common->body_bytes(), 30U);
  waiting.reset();
  EXPECT_EQ(common->body_bytes(), 0U);
}

TEST_F(LinkBudget, ABodyThatIsGivenUpWhileItWaitsReturnsNothing) {
  auto first = link();
  auto second = link();
  auto body = first->body(80);
  auto waiting = second->body(30);
  waiting.reset();
  EXPECT_FALSE(second->held());
  EXPECT_EQ(common->body_bytes(), 80U);
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
