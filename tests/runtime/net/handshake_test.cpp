#include "runtime/net/handshake.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "handshake.pb.h"
#include "runtime/core/random.hpp"
#include "runtime/net/framing.hpp"

namespace waggle::net {
namespace {

using ::testing::HasSubstr;

handshake::setup setup_of(std::uint64_t who, bool dialled, std::string run = "demo",
                          int nonce = 0) {
  auto self = identity::from_seed(who);
  handshake::setup out{dialled,
                       std::move(run),
                       self,
                       {self->id(), self->key(), {{"10.0.0.1", 7700}}, false},
                       make_plain_verifier(),
                       {},
                       {},
                       {}};
  out.nonce.bytes.fill(static_cast<std::byte>(nonce != 0 ? nonce : static_cast<int>(who)));
  return out;
}

std::shared_ptr<const run_agreement> agreement_of(std::string lr) {
  run_agreement out;
  EXPECT_TRUE(out.add({"strategy", "collaborative", ""}));
  EXPECT_TRUE(out.add({"lr", lr, lr}));
  return std::make_shared<const run_agreement>(std::move(out));
}

handshake::setup setup_with(std::uint64_t who, bool dialled, peer_claims claims) {
  auto out = setup_of(who, dialled);
  out.claims = std::move(claims);
  return out;
}

/// Checks the reason of a refused handshake, at both ends.
void expect_refused(const handshake::step& step, ec code) {
  EXPECT_EQ(step.why.code, code) << to_string(step.why);
  EXPECT_FALSE(step.peer);
  ASSERT_EQ(step.send.size(), 1u);
  auto received = handshake{setup_of(99, true)}.on_message(step.send[0]);
  EXPECT_EQ(received.why.code, code) << "the other side receives the reason";
  EXPECT_TRUE(received.send.empty());
}

TEST(Handshake, BothEndsLearnTheOthersIdentity) {
  handshake ann{setup_of(1, true)};
  handshake bob{setup_of(2, false)};
  auto from_bob = bob.on_message(ann.hello());
  auto from_ann = ann.on_message(bob.hello());
  ASSERT_EQ(from_bob.send.size(), 1u);
  ASSERT_EQ(from_ann.send.size(), 1u);
  EXPECT_FALSE(from_bob.peer) << "a claim is not a proof";
  auto bob_done = bob.on_message(from_ann.send[0]);
  auto ann_done = ann.on_message(from_bob.send[0]);
  ASSERT_TRUE(ann_done.peer);
  ASSERT_TRUE(bob_done.peer);
  EXPECT_EQ(ann_done.peer->id, identity::from_seed(2)->id());
  EXPECT_EQ(bob_done.peer->id, identity::from_seed(1)->id());
  EXPECT_EQ(bob_done.peer->addresses, (std::vector<endpoint>{{"10.0.0.1", 7700}}));
}

TEST(Handshake, BothEndsLearnTheOthersClaims) {
  handshake ann{setup_with(1, true, {17, agreement_of("0.003")})};
  handshake bob{setup_with(2, false, {18, nullptr})};
  auto from_bob = bob.on_message(ann.hello());
  auto from_ann = ann.on_message(bob.hello());
  ASSERT_TRUE(bob.on_message(from_ann.send.at(0)).peer)
    << "without an agreement any peer is accepted";
  ASSERT_TRUE(ann.on_message(from_bob.send.at(0)).peer);
  EXPECT_EQ(bob.claims().instance, 17U);
  ASSERT_TRUE(bob.claims().agreement);
  EXPECT_EQ(*bob.claims().agreement, *agreement_of("0.003"));
  EXPECT_EQ(ann.claims().instance, 18U);
  EXPECT_FALSE(ann.claims().agreement);
}

TEST(Handshake, OtherOptionsAreRefusedWithBothValuesAtBothEnds) {
  handshake ann{setup_with(1, true, {1, agreement_of("0.01")})};
  handshake bob{setup_with(2, false, {2, agreement_of("0.003")})};
  auto from_bob = bob.on_message(ann.hello());
  auto from_ann = ann.on_message(bob.hello());
  auto at_bob = bob.on_message(from_ann.send.at(0));
  auto at_ann = ann.on_message(from_bob.send.at(0));
  EXPECT_FALSE(at_bob.peer);
  EXPECT_FALSE(at_ann.peer);
  EXPECT_EQ(at_bob.why.code, ec::agreement_mismatch);
  EXPECT_THAT(at_bob.why.detail, HasSubstr("lr is 0.003 here and 0.01 there"));
  EXPECT_EQ(at_ann.why.code, ec::agreement_mismatch);
  EXPECT_THAT(at_ann.why.detail, HasSubstr("lr is 0.01 here and 0.003 there"));
  // An end that has not compared yet gets the reason from its own point of view as well.
  auto received = handshake{setup_of(1, true)}.on_message(at_bob.send.at(0));
  EXPECT_EQ(received.why.code, ec::agreement_mismatch);
  EXPECT_THAT(received.why.detail, HasSubstr("lr is 0.01 here and 0.003 there"));
}

TEST(Handshake, APeerThatDoesNotKnowTheRunDoesNotGetItsOptions) {
  handshake bob{setup_with(2, false, {2, agreement_of("0.00123")})};
  auto all = bob.hello();
  auto answer = bob.on_message(handshake{setup_of(1, true, "guessed")}.hello());
  EXPECT_EQ(answer.why.code, ec::wrong_run);
  for (const auto& message : answer.send)
    all += message;
  EXPECT_EQ(all.find("0.00123"), std::string::npos);
}

TEST(Handshake, AnAgreementThatTheProofDoesNotCoverIsRefused) {
  handshake ann{setup_with(1, true, {1, agreement_of("0.003")})};
  handshake bob{setup_with(2, false, {2, agreement_of("0.003")})};
  (void)bob.on_message(ann.hello());
  proto::HandshakeMessage proof;
  ASSERT_TRUE(proof.ParseFromString(ann.on_message(bob.hello()).send.at(0)));
  proof.mutable_proof()->clear_agreement();
  expect_refused(bob.on_message(proof.SerializeAsString()), ec::bad_signature);
}

TEST(Handshake, ASecondProcessWithOurIdentityIsDistinguishedFromOurselves) {
  handshake here{setup_with(1, false, {1, nullptr})};
  auto step = here.on_message(handshake{setup_with(1, true, {2, nullptr})}.hello());
  EXPECT_EQ(step.why.code, ec::duplicate_identity);
  EXPECT_THAT(step.why.detail, HasSubstr("another process uses this identity"));
}

TEST(Handshake, AnAgreementAsLargeAsCanBeFitsIntoAMessage) {
  auto largest = std::make_shared<run_agreement>();
  for (int i = 0; i < 10; ++i)
    (void)largest->add(
      {"f" + std::to_string(i), std::string(run_agreement::text_bytes_max, 'x'), ""});
  auto left = run_agreement::bytes_max - largest->encode().size();
  ASSERT_TRUE(largest->add({"rest", std::string(left - 10, 'x'), ""}));
  ASSERT_EQ(largest->encode().size(), run_agreement::bytes_max);
  handshake ann{setup_with(1, true, {1, largest})};
  handshake bob{setup_with(2, false, {2, largest})};
  (void)bob.on_message(ann.hello());
  EXPECT_TRUE(bob.on_message(ann.on_message(bob.hello()).send.at(0)).peer);
}

TEST(Handshake, AnotherRunIsRefused) {
  handshake bob{setup_of(2, false)};
  expect_refused(bob.on_message(handshake{setup_of(1, true, "other")}.hello()), ec::wrong_run);
}

TEST(Handshake, AnotherVersionIsRefused) {
  proto::HandshakeMessage hello;
  ASSERT_TRUE(hello.ParseFromString(handshake{setup_of(1, true)}.hello()));
  hello.mutable_hello()->set_version(protocol_version + 1);
  expect_refused(handshake{setup_of(2, false)}.on_message(hello.SerializeAsString()),
                 ec::wrong_version);
}

TEST(Handshake, AConnectionToOneselfIsRefused) {
  expect_refused(handshake{setup_of(1, false)}.on_message(handshake{setup_of(1, true)}.hello()),
                 ec::duplicate_identity);
}

TEST(Handshake, AnotherPeerThanExpectedIsRefused) {
  auto setup = setup_of(1, true);
  setup.expected = identity::from_seed(3)->id();
  handshake ann{setup};
  handshake bob{setup_of(2, false)};
  (void)ann.on_message(bob.hello());
  expect_refused(ann.on_message(bob.on_message(ann.hello()).send[0]), ec::bad_signature);
}

TEST(Handshake, AProofOfAnotherConnectionIsRefused) {
  handshake ann{setup_of(1, true)};
  handshake bob{setup_of(2, false)};
  (void)ann.on_message(bob.hello());
  auto recorded = ann.hello();
  handshake ann_again{setup_of(1, true)};
  auto proof = ann_again.on_message(bob.hello()).send[0];
  // An eavesdropper replays hello and proof on a connection with another nonce.
  handshake later{setup_of(2, false, "demo", 77)};
  ASSERT_EQ(later.on_message(recorded).send.size(), 1u);
  expect_refused(later.on_message(proof), ec::bad_signature);
}

TEST(Handshake, OnesOwnProofSentBackIsRefused) {
  // An attacker that claims Ann's key is refused as a connection to oneself. With its own key and
  // Ann's nonce, Ann's proof still names the role of a dialler.
  handshake ann{setup_of(1, true)};
  auto attacker = setup_of(5, false, "demo", 1);
  auto proof = ann.on_message(handshake{attacker}.hello()).send[0];
  expect_refused(ann.on_message(proof), ec::bad_signature);
}

TEST(Handshake, ASignatureOfAnotherPeerIsRefused) {
  handshake bob{setup_of(2, false)};
  (void)bob.on_message(handshake{setup_of(1, true)}.hello());
  proto::HandshakeMessage proof;
  proof.mutable_proof()->set_signature(std::string{identity::from_seed(3)->sign("whatever").raw()});
  expect_refused(bob.on_message(proof.SerializeAsString()), ec::bad_signature);
  handshake carol{setup_of(2, false)};
  (void)carol.on_message(handshake{setup_of(1, true)}.hello());
  proof.mutable_proof()->set_signature("short");
  expect_refused(carol.on_message(proof.SerializeAsString()), ec::bad_signature);
}

TEST(Handshake, MessagesOutOfTurnAreRefused) {
  proto::HandshakeMessage proof;
  proof.mutable_proof()->set_signature(std::string(64, 'x'));
  expect_refused(handshake{setup_of(2, false)}.on_message(proof.SerializeAsString()),
                 ec::protocol_violation);
  handshake bob{setup_of(2, false)};
  (void)bob.on_message(handshake{setup_of(1, true)}.hello());
  expect_refused(bob.on_message(handshake{setup_of(1, true)}.hello()), ec::protocol_violation);
  expect_refused(handshake{setup_of(2, false)}.on_message(""), ec::protocol_violation);
}

TEST(Handshake, FieldsOutOfBoundsAreRefused) {
  auto with = [](auto change) {
    proto::HandshakeMessage message;
    EXPECT_TRUE(message.ParseFromString(handshake{setup_of(1, true)}.hello()));
    change(*message.mutable_hello());
    return handshake{setup_of(2, false)}.on_message(message.SerializeAsString());
  };
  expect_refused(with([](auto& h) { h.set_key("short"); }), ec::malformed);
  expect_refused(with([](auto& h) { h.set_nonce("short"); }), ec::malformed);
  expect_refused(with([](auto& h) { h.set_run_id(std::string(257, 'r')); }), ec::malformed);
  expect_refused(with([](auto& h) { h.mutable_addresses(0)->set_port(70'000); }), ec::malformed);
  expect_refused(with([](auto& h) { h.mutable_addresses(0)->set_port(0); }), ec::malformed);
  expect_refused(with([](auto& h) { h.mutable_addresses(0)->set_host(std::string(254, 'h')); }),
                 ec::malformed);
  expect_refused(with([](auto& h) {
                   for (int i = 0; i < 4; ++i)
                     *h.add_addresses() = h.addresses(0);
                 }),
                 ec::malformed);
  expect_refused(
    handshake{setup_of(2, false)}.on_message(std::string(handshake_bytes_max + 1, 'x')),
    ec::malformed);
  expect_refused(handshake{setup_of(2, false)}.on_message("\xff\xff"), ec::malformed);
}

TEST(Handshake, ADenialIsReadAndNeverLong) {
  proto::HandshakeMessage denial;
  denial.mutable_denial()->set_code(static_cast<std::uint32_t>(ec::wrong_run));
  denial.mutable_denial()->set_detail(std::string(2'000, 'd'));
  auto step = handshake{setup_of(1, true)}.on_message(denial.SerializeAsString());
  EXPECT_EQ(step.why.code, ec::wrong_run);
  EXPECT_LT(step.why.detail.size(), 600u);
  EXPECT_TRUE(step.send.empty());
  denial.mutable_denial()->set_code(0);
  EXPECT_EQ(handshake{setup_of(1, true)}.on_message(denial.SerializeAsString()).why.code,
            ec::internal);
}

TEST(Handshake, RandomBytesNeverCrashAndNeverSucceed) {
  random_source random{8};
  auto hello = handshake{setup_of(1, true)}.hello();
  for (int i = 0; i < 20'000; ++i) {
    handshake bob{setup_of(2, false)};
    auto bytes = hello;
    for (auto n = 1 + random.below(5); n > 0; --n)
      bytes[random.below(bytes.size())] = static_cast<char>(random.next());
    (void)bob.on_message(bytes);
    EXPECT_FALSE(bob.on_message(bytes).peer);
  }
}

TEST(Framing, APrefixIsReadAsItIsWritten) {
  for (auto prefix :
       {frame_prefix{frame_kind::message, 17, 1U << 24U}, frame_prefix{frame_kind::window, 8, 0},
        frame_prefix{frame_kind::handshake, 100, 0}}) {
    auto read = read_prefix(write_prefix(prefix));
    ASSERT_TRUE(read.ok());
    EXPECT_EQ(read->kind, prefix.kind);
    EXPECT_EQ(read->header_bytes, prefix.header_bytes);
    EXPECT_EQ(read->body_bytes, prefix.body_bytes);
  }
}

TEST(Framing, BytesThatAreNotAFrameAreRefusedBeforeMemoryIsAllocated) {
  auto code = [](frame_prefix prefix, auto change) {
    auto bytes = write_prefix(prefix);
    change(bytes);
    auto read = read_prefix(bytes);
    return read.ok() ? ec::none : read.error().code;
  };
  auto same = [](auto&) {};
  frame_prefix message{frame_kind::message, 10, 10};
  EXPECT_EQ(code(message, same), ec::none);
  EXPECT_EQ(code(message, [](auto& b) { b[0] = std::byte{'X'}; }), ec::malformed);
  EXPECT_EQ(code(message, [](auto& b) { b[4] = std::byte{3}; }), ec::malformed);
  EXPECT_EQ(code(message, [](auto& b) { b[6] = std::byte{1}; }), ec::malformed);
  EXPECT_EQ(code({frame_kind::message, frame_header_bytes_max + 1, 0}, same), ec::oversize);
  EXPECT_EQ(code({frame_kind::message, 0, frame_body_bytes_max + 1}, same), ec::oversize);
  EXPECT_EQ(code({frame_kind::message, 0xffffffffU, 0xffffffffU}, same), ec::oversize);
  EXPECT_EQ(code({frame_kind::handshake, 10, 1}, same), ec::malformed);
  EXPECT_EQ(code({frame_kind::window, 7, 0}, same), ec::malformed);
  EXPECT_EQ(code({frame_kind::window, 8, 1}, same), ec::malformed);
}

} // namespace
} // namespace waggle::net
