#include "runtime/training/time_account.hpp"

#include <map>
#include <numeric>

#include <gtest/gtest.h>

namespace waggle {
namespace {

TEST(TimeAccount, SumsToTheTimeThatHasPassedWhileItLasts) {
  time_account account;
  std::map<activity, double> sums;
  steady_time now{1h};
  double total = 0;
  auto look = [&](activity present) {
    if (auto span = account.look(present, now)) {
      sums[span->what] += span->seconds;
      total += span->seconds;
    }
  };
  auto spend = [&](activity what, milliseconds time) {
    look(what);
    for (; time > 0ms; time -= 20ms) { // the trainer looks this often
      now += 20ms;
      look(what);
      EXPECT_LE(seconds_of(now - steady_time{1h}) - total, 0.1) << "it is late";
    }
  };
  spend(activity::search, 3'000ms);
  spend(activity::download, 600ms);
  for (int i = 0; i < 50; ++i) {
    spend(activity::pass, 40ms);
    spend(activity::round, 20ms);
    spend(activity::update, 20ms);
    spend(activity::idle, 20ms);
  }
  look(activity::search);
  EXPECT_NEAR(sums[activity::search], 3.0, 1e-9);
  EXPECT_NEAR(sums[activity::download], 0.6, 1e-9);
  EXPECT_NEAR(sums[activity::pass], 2.0, 1e-9);
  EXPECT_NEAR(sums[activity::round], 1.0, 1e-9);
  EXPECT_NEAR(sums[activity::update], 1.0, 1e-9);
  EXPECT_NEAR(sums[activity::idle], 1.0, 1e-9);
  EXPECT_NEAR(total, seconds_of(now - steady_time{1h}), 1e-9);
}

TEST(RecentTime, HasTheSharesOfTheLastMinute) {
  recent_time recent;
  EXPECT_EQ(recent.shares(), std::nullopt);
  steady_time now{1h};
  auto spend = [&](activity what, std::chrono::seconds time) {
    for (; time > 0s; time -= 1s)
      recent.add({what, 1}, now += 1s);
  };
  spend(activity::download, 100s);
  spend(activity::pass, 45s);
  spend(activity::round, 15s);
  recent.add_agreement(3, now);
  auto shares = *recent.shares();
  auto of = [&](activity what) { return shares[static_cast<std::size_t>(what)]; };
  EXPECT_NEAR(of(activity::pass), 0.75, 0.05);
  EXPECT_NEAR(of(activity::round), 0.25, 0.05);
  EXPECT_EQ(of(activity::download), 0) << "more than a minute ago";
  EXPECT_NEAR(shares[recent_time::agreement], 0.05, 0.01);
  EXPECT_NEAR(std::accumulate(shares.begin(), shares.end(), -shares[recent_time::agreement]), 1,
              1e-9);
  recent.add_agreement(1000, now);
  EXPECT_EQ((*recent.shares())[recent_time::agreement], of(activity::round)) << "a part of it";
  spend(activity::idle, 200s);
  shares = *recent.shares();
  EXPECT_EQ(of(activity::idle), 1);
}

TEST(RecentTime, GivesTheCourseOfAnEpochOnce) {
  recent_time recent;
  steady_time now{1h};
  EXPECT_EQ(recent.take_spans(now), "");
  recent.add({activity::pass, 0.1}, now += 100ms);
  recent.add({activity::pass, 0.18}, now += 180ms);
  recent.add({activity::search, 0.0004}, now);
  recent.add({activity::round, 0.02}, now += 20ms);
  EXPECT_EQ(recent.take_spans(now - 15ms), "-285.4p280.0s0.4r20.0");
  EXPECT_EQ(recent.take_spans(now), "");
  for (int i = 0; i < 1000; ++i)
    recent.add({i % 2 == 0 ? activity::pass : activity::idle, 0.01}, now += 10ms);
  auto course = recent.take_spans(now);
  EXPECT_EQ(course.substr(0, 12), "-480.0p10.0i");
  EXPECT_LT(course.size(), 512U) << "a field of an event";
}

} // namespace
} // namespace waggle
