#include "runtime/averaging/newcomer_hosts.hpp"

#include <gtest/gtest.h>

#include "tests/support/ids.hpp"

namespace waggle {
namespace {

using namespace std::chrono_literals;

const steady_time t0 = steady_time{} + 1h;

TEST(NewcomerHosts, AHostWhoseNewcomersAreSilentAdmitsNoneForATimeThatDoubles) {
  newcomer_hosts hosts;
  auto now = t0;
  std::uint8_t name = 1;
  for (auto expected : {10s, 20s, 40s, 60s, 60s}) {
    ASSERT_TRUE(hosts.admits("10.0.0.1", now));
    hosts.accepted(id_of(name), "10.0.0.1");
    auto paused = hosts.silent(id_of(name), now);
    ASSERT_TRUE(paused);
    EXPECT_EQ(paused->lasts, expected);
    EXPECT_EQ(paused->host, "10.0.0.1");
    EXPECT_FALSE(hosts.admits("10.0.0.1", now + expected - 1ms));
    EXPECT_TRUE(hosts.admits("10.0.0.2", now));
    EXPECT_TRUE(hosts.admits("", now)) << "its host is not known";
    now += expected;
    ++name;
  }
}

TEST(NewcomerHosts, ThoseAdmittedTogetherCountOnce) {
  newcomer_hosts hosts;
  hosts.accepted(id_of(1), "h");
  hosts.accepted(id_of(2), "h");
  EXPECT_TRUE(hosts.silent(id_of(1), t0));
  EXPECT_FALSE(hosts.silent(id_of(2), t0));
  EXPECT_TRUE(hosts.admits("h", t0 + 10s));
}

TEST(NewcomerHosts, WhoeverContributedIsNoNewcomer) {
  newcomer_hosts hosts;
  hosts.accepted(id_of(1), "h");
  hosts.forget(id_of(1));
  EXPECT_FALSE(hosts.silent(id_of(1), t0));
  EXPECT_FALSE(hosts.silent(id_of(2), t0)) << "it never applied";
  EXPECT_TRUE(hosts.admits("h", t0));
}

} // namespace
} // namespace waggle
