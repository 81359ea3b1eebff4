#include "runtime/net/dial_limits.hpp"

#include <gtest/gtest.h>

#include "runtime/net/refusals.hpp"

namespace waggle::net {
namespace {

const steady_time began{std::chrono::hours{1}};
const failure no_answer{ec::timeout, "silent"};

peer_id holder(unsigned char n) {
  peer_id out;
  out.bytes[0] = std::byte{n};
  return out;
}
endpoint at_port(std::uint16_t port) {
  return {"192.0.2.1", port};
}

TEST(DialLimits, CountAttemptsAtOnceAndPerSecond) {
  dial_limits limits{{.attempts_max = 2}};
  limits.begin(at_port(1), holder(1), began);
  EXPECT_FALSE(limits.exhausted(began));
  limits.begin(at_port(2), holder(1), began);
  EXPECT_TRUE(limits.exhausted(began));
  limits.end(at_port(1), no_answer, began);
  EXPECT_TRUE(limits.exhausted(began + 999ms)) << "begun within a second";
  EXPECT_FALSE(limits.exhausted(began + 1s));
  limits.begin(at_port(3), holder(1), began + 1s);
  EXPECT_TRUE(limits.exhausted(began + 5s)) << "under way";
}

TEST(DialLimits, AnAddressIsTriedForOnePeerAtATime) {
  dial_limits limits{{}};
  limits.begin(at_port(1), holder(1), began);
  EXPECT_TRUE(limits.taken(at_port(1), holder(2)));
  EXPECT_FALSE(limits.taken(at_port(1), holder(1)));
  EXPECT_FALSE(limits.taken(at_port(2), holder(2)));
  limits.end(at_port(1), {}, began);
  EXPECT_FALSE(limits.taken(at_port(1), holder(2)));
  EXPECT_FALSE(limits.failed_lately(at_port(1), holder(2), began)) << "it was reached";
}

TEST(DialLimits, AnAddressThatFailedIsNotTriedForOthersAtOnce) {
  dial_limits limits{{}};
  limits.begin(at_port(1), holder(1), began);
  limits.end(at_port(1), no_answer, began);
  EXPECT_EQ(limits.failed_lately(at_port(1), holder(2), began + 4s), no_answer);
  EXPECT_FALSE(limits.failed_lately(at_port(1), holder(1), began)) << "it is its own";
  EXPECT_FALSE(limits.failed_lately(at_port(1), holder(2), began + 5s));
  EXPECT_FALSE(limits.failed_lately(at_port(2), holder(2), began));
  // A peer that was started again with another identity is soon reached under its new one.
  limits.begin(at_port(2), holder(1), began);
  limits.end(at_port(2), {ec::bad_signature, "another peer"}, began);
  EXPECT_TRUE(limits.failed_lately(at_port(2), holder(2), began));
  EXPECT_FALSE(limits.failed_lately(at_port(2), holder(2), began + 1s));
}

TEST(DialLimits, AnAddressThatLeadsToThisPeerItselfIsDialledForNobody) {
  dial_limits limits{{}};
  limits.begin(at_port(1), holder(1), began);
  limits.end(at_port(1), {ec::duplicate_identity, "a peer dialled itself"}, began);
  for (unsigned char n : {1, 2})
    EXPECT_TRUE(limits.failed_lately(at_port(1), holder(n), began + 599s));
  EXPECT_FALSE(limits.failed_lately(at_port(1), holder(1), began + 600s));
  // Another process with our identity is another peer.
  limits.begin(at_port(2), holder(1), began);
  limits.end(at_port(2), {ec::duplicate_identity, std::string{identity_in_use}}, began);
  EXPECT_FALSE(limits.failed_lately(at_port(2), holder(1), began));
}

TEST(DialLimits, AnAttemptWithoutANameIsOnlyCounted) {
  dial_limits limits{{}};
  limits.begin(at_port(1), {}, began);
  EXPECT_FALSE(limits.taken(at_port(1), holder(1)));
  limits.end(at_port(1), no_answer, began);
  EXPECT_FALSE(limits.failed_lately(at_port(1), holder(1), began));
  limits.begin(at_port(1), holder(1), began);
  limits.end(at_port(1), no_answer, began);
  EXPECT_FALSE(limits.failed_lately(at_port(1), {}, began));
}

TEST(DialLimits, ForgetWhatIsOldAndNeverWhatIsUnderWay) {
  dial_limits limits{{.attempts_max = 100, .addresses_max = 2}};
  limits.begin(at_port(1), holder(1), began);
  for (std::uint16_t port = 2; port < 10; ++port) {
    limits.begin(at_port(port), holder(1), began);
    limits.end(at_port(port), no_answer, began);
  }
  EXPECT_TRUE(limits.taken(at_port(1), holder(2)));
  EXPECT_FALSE(limits.failed_lately(at_port(2), holder(2), began));
  EXPECT_TRUE(limits.failed_lately(at_port(9), holder(2), began));
}

} // namespace
} // namespace waggle::net
