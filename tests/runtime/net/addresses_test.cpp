// Which addresses are announced, which of others are dialled, what limits count as one host, and
// under which names pages are served.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/net/dial_policy.hpp"
#include "runtime/net/host_key.hpp"
#include "runtime/net/http_hosts.hpp"
#include "runtime/net/local_addresses.hpp"

namespace waggle::net {
namespace {

using ::testing::HasSubstr;

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

// -- which are announced -------------------------------------------------------------------------

using hosts = std::vector<std::string>;

interface_address bridge(const std::string& name, const std::string& host, bool carrier) {
  return {name, host, carrier, true, false};
}

TEST(AddressesToAnnounce, TheDefaultRoutesComesBeforeThoseOfBridges) {
  machine_addresses machine;
  for (auto n : {"17", "18", "19", "20", "21"})
    machine.all.push_back(bridge(std::string{"br"} + n, std::string{"172."} + n + ".0.1", true));
  machine.all.push_back(bridge("br-idle", "10.5.0.1", false));
  machine.all.push_back({"eth1", "192.168.7.2"});
  machine.all.push_back({"eth0", "10.77.0.1"});
  machine.by_default = {"10.77.0.1"};
  EXPECT_EQ(addresses_to_announce(machine, true, true),
            (hosts{"10.77.0.1", "192.168.7.2", "172.17.0.1", "172.18.0.1"}));
  machine.towards_initial_peers = {"192.168.7.2"};
  EXPECT_EQ(addresses_to_announce(machine, true, true).front(), "192.168.7.2")
    << "VirtualBox gives 10.0.2.15 and a default route to each machine";
  machine.towards_initial_peers = {"172.19.0.1"};
  EXPECT_EQ(addresses_to_announce(machine, true, true).front(), "172.19.0.1")
    << "a run in containers, and this peer on their host";
}

TEST(AddressesToAnnounce, ABridgeThatCarriesTheDefaultRouteIsOneAsAnyOther) {
  machine_addresses machine{{{"eth1", "192.168.7.2"}, bridge("br0", "172.20.3.4", true)}, {}, {}};
  EXPECT_EQ(addresses_to_announce(machine, true, true).back(), "172.20.3.4");
  machine.by_default = {"172.20.3.4"};
  EXPECT_EQ(addresses_to_announce(machine, true, true).front(), "172.20.3.4");
}

TEST(AddressesToAnnounce, AreOfBothFamiliesAndOfEachInterface) {
  machine_addresses machine{{{"eth0", "10.0.0.1"},
                             {"eth0", "2001:db8::aaaa", true, false, true},
                             {"eth0", "2001:db8::1"},
                             {"eth0", "fd00::1"},
                             {"wlan0", "192.168.1.9"}},
                            {},
                            {"10.0.0.1", "2001:db8::aaaa"}};
  EXPECT_EQ(addresses_to_announce(machine, true, true),
            (hosts{"10.0.0.1", "2001:db8::1", "192.168.1.9", "fd00::1"}))
    << "of the interface of the default route, first those that stay";
  EXPECT_EQ(addresses_to_announce(machine, false, true),
            (hosts{"2001:db8::1", "fd00::1", "2001:db8::aaaa"}));
  EXPECT_EQ(addresses_to_announce(machine, true, false), (hosts{"10.0.0.1", "192.168.1.9"}));
}

TEST(AddressesToAnnounce, LoopbackOnlyIfThereIsNothingElse) {
  EXPECT_EQ(addresses_to_announce({}, true, true), hosts{"127.0.0.1"});
  EXPECT_EQ(addresses_to_announce({}, false, true), hosts{"::1"});
  machine_addresses self_assigned{{{"eth0", "169.254.7.7"}}, {}, {}};
  EXPECT_EQ(addresses_to_announce(self_assigned, true, true), hosts{"169.254.7.7"});
}

TEST(AddressesToAnnounce, AMachineThatHasOnlyAddressesOfLinksIsWarned) {
  machine_addresses machine;
  EXPECT_EQ(only_of_links(machine), std::nullopt) << "of no network";
  machine.of_link = "fe80::7%eth0";
  EXPECT_THAT(only_of_links(machine).value_or(""),
              HasSubstr("announce that one, '[fe80::7%eth0]:"));
  machine.all = {{"eth0", "10.77.0.1"}};
  EXPECT_EQ(only_of_links(machine), std::nullopt);
}

TEST(NumericAddresses, OneOfALinkNeedsItsInterface) {
  auto found = numeric_addresses({{"fe80::7", 7700}}, {});
  EXPECT_THAT(found.error().detail,
              HasSubstr("cannot announce [fe80::7]:7700: an address of a link"));
  EXPECT_THAT(found.error().detail, HasSubstr("add %INTERFACE"));
  EXPECT_TRUE(numeric_addresses({{"fe80::7%lo", 7700}}, {}));
}

TEST(NumericAddresses, AllAddressesAndThoseOfManyMachinesAreNone) {
  for (const auto* host :
       {"0.0.0.0", "::", "::ffff:0.0.0.0", "224.0.0.1", "ff02::1", "255.255.255.255"}) {
    auto found = numeric_addresses({{"192.0.2.7", 7700}, {host, 7700}}, {});
    ASSERT_FALSE(found) << host;
    EXPECT_EQ(found.error().code, ec::bad_config);
    EXPECT_THAT(found.error().detail, HasSubstr(std::string{host}));
    EXPECT_THAT(found.error().detail, HasSubstr("it is no address of one machine"));
  }
}

TEST(NumericAddresses, OfANameAreOneOfEachFamilyAndNotLoopbackIfThereIsAnother) {
  auto lookup = [](const std::string& host) -> result<host_addresses> {
    if (host != "node.example.org")
      return failure{ec::unreachable, "no such name"};
    host_addresses found;
    for (const auto* each : {"127.0.1.1", "192.0.2.7", "192.0.2.8", "2001:db8::1"})
      found.push_back(boost::asio::ip::make_address(each));
    return found;
  };
  using endpoints = std::vector<endpoint>;
  auto found = numeric_addresses({{"node.example.org", 7700}, {"192.0.2.7", 7700}}, lookup);
  EXPECT_EQ(*found, (endpoints{{"192.0.2.7", 7700}, {"2001:db8::1", 7700}})) << "each once";
  auto unknown = numeric_addresses({{"192.0.2.7", 7700}, {"other.example.org", 7700}}, lookup);
  EXPECT_EQ(unknown.error().code, ec::bad_config);
  EXPECT_TRUE(numeric_addresses({}, lookup)->empty());
}

TEST(ReachedAt, IsWhereItIsBoundAndForAllAddressesThoseOfTheMachine) {
  using endpoints = std::vector<endpoint>;
  machine_addresses machine;
  machine.all = {{"eth0", "10.77.0.1"}, {"eth0", "2001:db8::1"}};
  EXPECT_EQ(reached_at({{"192.0.2.7", 7700}}, machine), (endpoints{{"192.0.2.7", 7700}}));
  EXPECT_EQ(reached_at({{"0.0.0.0", 7701}}, machine), (endpoints{{"10.77.0.1", 7701}}));
  EXPECT_EQ(reached_at({{"::", 7702}}, machine),
            (endpoints{{"10.77.0.1", 7702}, {"2001:db8::1", 7702}}))
    << "[::] accepts both families";
}

// -- what is one host ----------------------------------------------------------------------------

std::string key(const std::string& remote, const std::string& local) {
  return host_key(boost::asio::ip::make_address(remote), boost::asio::ip::make_address(local));
}

TEST(HostKey, CountsANetworkOfIpv6AsOneHost) {
  EXPECT_EQ(key("2001:db8:1:2::7", "2001:db8:9::1"), "2001:db8:1:2::/64");
  EXPECT_EQ(key("2001:db8:1:2:ffff::7", "2001:db8:9::1"), "2001:db8:1:2::/64");
  EXPECT_NE(key("2001:db8:1:3::7", "2001:db8:9::1"), key("2001:db8:1:2::7", "2001:db8:9::1"));
}

TEST(HostKey, TellsNeighboursApart) {
  EXPECT_EQ(key("fd77::2", "fd77::1"), "fd77::2") << "our own network";
  EXPECT_EQ(key("fe80::2", "fe80::1"), "fe80::2");
  EXPECT_EQ(key("::1", "::1"), "::1");
}

TEST(HostKey, AnIpv4AddressIsAHostHoweverItCame) {
  EXPECT_EQ(key("192.0.2.7", "192.0.2.1"), "192.0.2.7");
  EXPECT_EQ(key("::ffff:192.0.2.7", "::ffff:192.0.2.1"), "192.0.2.7");
}

// -- whose pages are served ----------------------------------------------------------------------

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

TEST(HttpHosts, ThePageThatShowsTheDocumentsFollowsTheirRule) {
  for (const auto* page : {"/", "/?x", "/live/app.js"}) {
    EXPECT_FALSE(answers(page, "evil.example.com:7700")) << page;
    EXPECT_TRUE(answers(page, "192.0.2.7:7700")) << page;
    EXPECT_TRUE(answers(page, "peer.example.org", {"peer.example.org"})) << page;
  }
}

TEST(HttpHosts, MetricsAndHealthAreAnsweredUnderEveryName) {
  for (const auto* page : {"/metrics", "/healthz", "/readyz"})
    EXPECT_TRUE(answers(page, "peer.example.com:7700")) << page;
}

} // namespace
} // namespace waggle::net
