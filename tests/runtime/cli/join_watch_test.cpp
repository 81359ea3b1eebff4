#include "runtime/cli/join_watch.hpp"

#include <gtest/gtest.h>

namespace waggle {
namespace {

const endpoint a{"a", 1};
const endpoint b{"b", 2};
const endpoint stranger{"c", 3};
const failure why{ec::agreement_mismatch, "lr"};

TEST(JoinWatch, RefusedIsWhomEveryInitialPeerRefused) {
  join_watch watch{{a, b}};
  EXPECT_FALSE(watch.refused_by_all());
  watch.disagreed(a, why);
  watch.disagreed(a, why);
  watch.disagreed(stranger, why);
  EXPECT_FALSE(watch.refused_by_all());
  watch.disagreed(b, why);
  EXPECT_EQ(watch.refused_by_all(), why);
}

TEST(JoinWatch, ANameHasRefusedOnceAllOfItsAddressesHave) {
  const endpoint first{"10.0.0.1", 1};
  const endpoint second{"10.0.0.2", 1};
  join_watch watch{{a}};
  watch.resolved(a, {first, second});
  watch.resolved(stranger, {first});
  watch.disagreed(first, why);
  EXPECT_FALSE(watch.refused_by_all());
  watch.disagreed(first, why);
  EXPECT_FALSE(watch.refused_by_all()) << "the second may accept";
  watch.resolved(a, {second, first});
  watch.disagreed(second, why);
  EXPECT_EQ(watch.refused_by_all(), why);
}

TEST(JoinWatch, ANameHasRefusedIfOneOfItsAddressesDoesSoRepeatedlyAndNoneAccepts) {
  const endpoint first{"127.0.0.1", 1};
  join_watch watch{{a}};
  watch.resolved(a, {first, {"::1", 1}});
  for (int i = 0; i < 3; ++i) {
    EXPECT_FALSE(watch.refused_by_all());
    watch.disagreed(first, why);
  }
  EXPECT_EQ(watch.refused_by_all(), why);
}

TEST(JoinWatch, WhoIsLinkedWithAnybodyIsNotRefused) {
  join_watch watch{{a}};
  watch.disagreed(a, why);
  watch.linked(nullptr);
  EXPECT_FALSE(watch.refused_by_all());
}

TEST(JoinWatch, WhoStartsARunIsNotRefused) {
  join_watch watch{{}};
  watch.disagreed(stranger, why);
  EXPECT_FALSE(watch.refused_by_all());
}

TEST(JoinWatch, AnAgreementIsNewOnceAndOnlyAFewAre) {
  join_watch watch{{}};
  EXPECT_EQ(watch.take_news(), nullptr);
  for (int i = 0; i < 100; ++i) {
    auto agreement = std::make_shared<run_agreement>();
    ASSERT_TRUE(agreement->add({"lr", std::to_string(i), ""}));
    watch.linked(agreement);
    watch.linked(agreement);
  }
  int news = 0;
  while (watch.take_news() != nullptr)
    ++news;
  EXPECT_EQ(news, 4);
}

} // namespace
} // namespace waggle
