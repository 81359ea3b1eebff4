#include "runtime/net/link_proof.hpp"

#include <gtest/gtest.h>

namespace waggle::net {
namespace {

/// One end of a connection between the hosts 10.0.0.1, of the dialler, and 10.0.0.2.
struct connected_end {
  connected_end(bool dialled, std::string listens_at, const std::string& run = "demo")
    : self(identity::from_seed(dialled ? 1 : 2)) {
    handshake::setup with{dialled,
                          std::make_shared<const run_secret>(run),
                          self,
                          {self->id(), self->key(), {{std::move(listens_at), 7700}}, false},
                          make_plain_verifier(),
                          {},
                          {},
                          {}};
    with.nonce.bytes.fill(std::byte{dialled});
    socket_ends ends{{"10.0.0.1", 4000}, {"10.0.0.2", 7700}};
    if (!dialled)
      std::swap(ends.here, ends.there);
    hello = proof.begin(with, ends, [this](const result<std::shared_ptr<tcp_session>>& outcome) {
      ++reported;
      why = outcome.ok() ? ec::none : outcome.error().code;
    });
  }

  std::shared_ptr<const identity> self;
  link_proof proof;
  std::string hello;
  int reported = 0;
  ec why{};
};

TEST(LinkProof, KnowsBothEndsOnceTheyHaveProvedThemselves) {
  for (const auto* listens_at : {"", "0.0.0.0", "::", "10.0.0.2", "10.9.9.9"}) {
    connected_end ann{true, "10.0.0.1"};
    connected_end bob{false, listens_at};
    EXPECT_TRUE(ann.proof.under_way() && ann.proof.outbound() && !bob.proof.outbound());
    ASSERT_TRUE(bob.proof.on_message(ann.hello).send.empty());
    auto from_ann = ann.proof.on_message(bob.hello);
    ASSERT_EQ(from_ann.send.size(), 1U);
    auto from_bob = bob.proof.on_message(from_ann.send.front());
    ASSERT_TRUE(from_bob.peer);
    ASSERT_TRUE(ann.proof.on_message(from_bob.send.at(0)).peer);
    for (const auto& [end, other] : {std::pair{&ann, &bob}, {&bob, &ann}}) {
      EXPECT_EQ(end->proof.remote().id, other->self->id());
      EXPECT_EQ(end->proof.peers().dialler, ann.self->id());
      EXPECT_EQ(end->proof.peers().acceptor, bob.self->id());
    }
    EXPECT_EQ(ann.proof.host(), "10.0.0.2");
    EXPECT_EQ(ann.proof.remote().addresses.at(0).host,
              std::string_view{listens_at}.starts_with("10") ? listens_at : "10.0.0.2")
      << "an address that says nothing is where the peer is seen";
  }
}

TEST(LinkProof, ReportsItsEndOnce) {
  connected_end ann{true, "10.0.0.1"};
  ann.proof.end(failure{ec::timeout, {}});
  EXPECT_FALSE(ann.proof.under_way());
  EXPECT_EQ(ann.why, ec::timeout);
  ann.proof.end(failure{ec::peer_lost, {}});
  EXPECT_EQ(ann.reported, 1);
  EXPECT_EQ(ann.why, ec::timeout);
}

TEST(LinkProof, OfAPeerOfAnotherRunShowsNobody) {
  connected_end ann{true, "10.0.0.1"};
  connected_end bob{false, "10.0.0.2", "another"};
  (void)bob.proof.on_message(ann.hello);
  auto refused = bob.proof.on_message(ann.proof.on_message(bob.hello).send.at(0));
  EXPECT_NE(refused.why.code, ec::none);
  EXPECT_FALSE(refused.peer);
  EXPECT_TRUE(bob.proof.remote().id.is_zero());
}

} // namespace
} // namespace waggle::net
