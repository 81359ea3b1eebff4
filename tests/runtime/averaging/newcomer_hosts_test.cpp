#include "runtime/averaging/newcomer_hosts.hpp"

#include <gtest/gtest.h>

namespace waggle {
namespace {

using namespace std::chrono_literals;

const steady_time t0 = steady_time{} + 1h;

peer_id named(std::uint8_t n) {
  peer_id id;
  id.bytes[0] = std::byte{n};
  return id;
}

TEST(NewcomerHosts, AHostWhoseNewcomersAreSilentAdmitsNoneForATimeThatDoubles) {
  newcomer_hosts hosts;
  auto now = t0;
  std::uint8_t name = 1;
  for (auto expected : {10s, 20s, 40s, 60s, 60s}) {
    ASSERT_TRUE(hosts.admits("10.0.0.1", now));
    hosts.accepted(named(name), "10.0.0.1");
    auto paused = hosts.silent(named(name), now);
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
  hosts.accepted(named(1), "h");
  hosts.accepted(named(2), "h");
  EXPECT_TRUE(hosts.silent(named(1), t0));
  EXPECT_FALSE(hosts.silent(named(2), t0));
  EXPECT_TRUE(hosts.admits("h", t0 + 10s));
}

TEST(NewcomerHosts, WhoeverContributedIsNoNewcomer) {
  newcomer_hosts hosts;
  hosts.accepted(named(1), "h");
  hosts.forget(named(1));
  EXPECT_FALSE(hosts.silent(named(1), t0));
  EXPECT_FALSE(hosts.silent(named(2), t0)) << "it never applied";
  EXPECT_TRUE(hosts.admits("h", t0));
}

} // namespace
} // namespace waggle
