// Which announced addresses are dialled, and under which names pages are served.

#include <gtest/gtest.h>

#include "runtime/net/dial_policy.hpp"
#include "runtime/net/http_hosts.hpp"

namespace waggle::net {
namespace {

TEST(DialPolicy, DialsNumericAddressesOfOtherMachinesOnly) {
  dial_policy policy{{{"0.0.0.0", 7700}, {"seed.example.org", 7700}}};
  EXPECT_TRUE(policy.permits({"192.0.2.7", 7700}));
  EXPECT_TRUE(policy.permits({"10.1.2.3", 7700})) << "a private network is a usual place for a run";
  EXPECT_TRUE(policy.permits({"2001:db8::1", 7700}));
  for (const auto* host : {"a.name.of.a.stranger", "localhost", "127.0.0.1", "127.9.9.9", "::1",
                           "::ffff:127.0.0.1", "169.254.169.254", "fe80::1", "0.0.0.0", "0.1.2.3",
                           "::", "224.0.0.1", "255.255.255.255", "ff02::1", "", "127.1"})
    EXPECT_FALSE(policy.permits({host, 7700})) << host;
  EXPECT_FALSE(policy.permits({"192.0.2.7", 0}));
}

TEST(DialPolicy, DialsLoopbackAndTheLinkWhereItIsItself) {
  dial_policy local{{{"127.0.0.1", 7700}}};
  EXPECT_TRUE(local.permits({"127.0.0.1", 7701}));
  EXPECT_FALSE(local.permits({"169.254.1.1", 7701}));
  dial_policy wide{{{"0.0.0.0", 7700}}};
  EXPECT_FALSE(wide.permits({"127.0.0.1", 7701}));
  wide.reached_from("127.0.0.1");
  EXPECT_TRUE(wide.permits({"127.0.0.1", 7701})) << "a peer on this machine has reached it";
  wide.reached_from("fe80::2");
  EXPECT_TRUE(wide.permits({"fe80::1", 7701}));
}

bool answers(const std::string& page, const std::string& host,
             const std::set<std::string>& own = {}) {
  return answers_host({"GET", page, host}, own);
}

TEST(HttpHosts, DocumentsAboutTheRunAreNotReadThroughAForeignName) {
  const auto* page = "/api/v1/peers";
  EXPECT_FALSE(answers(page, "evil.example.com:7700"));
  EXPECT_FALSE(answers(page, "127.0.0.1.evil.example.com"));
  EXPECT_FALSE(answers(page, "evil.example.com."));
  for (const auto* host : {"127.0.0.1:7700", "[::1]:7700", "192.0.2.7", "localhost:7700",
                           "trainer:7700", "Trainer-3", "trainer.local", "trainer.default.svc", ""})
    EXPECT_TRUE(answers(page, host)) << host;
  EXPECT_TRUE(answers(page, "Peer.Example.org:7700", {"peer.example.org"}));
}

TEST(HttpHosts, MetricsAndHealthAreAnsweredUnderEveryName) {
  for (const auto* page : {"/metrics", "/healthz", "/readyz"})
    EXPECT_TRUE(answers(page, "peer.example.com:7700")) << page;
}

} // namespace
} // namespace waggle::net
