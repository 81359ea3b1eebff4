#include "runtime/training/time_account.hpp"

#include <map>

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

} // namespace
} // namespace waggle
