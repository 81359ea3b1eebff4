#include "runtime/net/handshake.hpp"

#include <map>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/core/random.hpp"
#include "runtime/net/framing.hpp"
#include "runtime/net/refusals.hpp"
#include "waggle_handshake.pb.h"

namespace waggle::net {
namespace {

using ::testing::HasSubstr;

/// Deriving a secret is slow on purpose.
std::shared_ptr<const run_secret> secret_of(const std::string& run) {
  static std::map<std::string, std::shared_ptr<const run_secret>> all;
  auto& one = all[run];
  if (!one)
    one = std::make_shared<const run_secret>(run);
  return one;
}

handshake::setup setup_of(std::uint64_t who, bool dialled, const std::string& run = "demo",
                          int nonce = 0) {
  auto self = identity::from_seed(who);
  handshake::setup out{dialled,
                       secret_of(run),
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

/// The messages of a whole handshake; at_ann and at_bob are what each end concludes.
struct conversation {
  conversation(handshake& ann, handshake& bob) {
    auto greeted = bob.on_message(ann.hello());
    EXPECT_TRUE(greeted.send.empty()) << "the acceptor waits for the dialler's proof";
    auto from_ann = ann.on_message(bob.hello());
    EXPECT_FALSE(from_ann.peer) << "a claim is not a proof";
    ann_proof = from_ann.send.at(0);
    at_bob = bob.on_message(ann_proof);
    EXPECT_EQ(at_bob.send.size(), 1U);
    at_ann = ann.on_message(at_bob.send.at(0));
  }
  std::string ann_proof;
  handshake::step at_ann;
  handshake::step at_bob;
};

/// Ann dials Bob. What Bob answers to messages that he must refuse, after both hellos.
handshake greeted_bob(const handshake& ann) {
  handshake bob{setup_of(2, false)};
  EXPECT_EQ(bob.on_message(ann.hello()).why.code, ec::none);
  return bob;
}

class fixed_clock final : public wall_clock {
public:
  explicit fixed_clock(swarm_time at) : at_(at) {}
  [[nodiscard]] swarm_time now() const override { return at_; }

private:
  swarm_time at_;
};

constexpr swarm_time noon{std::chrono::hours{24 * 365 * 50}};

/// A peer whose clock is `offset` from noon, and that took `delay` for the connection so far.
handshake::setup setup_at(std::uint64_t who, bool dialled, swarm_clock::duration offset,
                          swarm_clock::duration delay = {}) {
  auto out = setup_of(who, dialled);
  out.clock = std::make_shared<const fixed_clock>(noon + offset);
  out.began = noon + offset - delay;
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
  conversation talk{ann, bob};
  ASSERT_TRUE(talk.at_ann.peer);
  ASSERT_TRUE(talk.at_bob.peer);
  EXPECT_EQ(talk.at_ann.peer->id, identity::from_seed(2)->id());
  EXPECT_EQ(talk.at_bob.peer->id, identity::from_seed(1)->id());
  EXPECT_EQ(talk.at_bob.peer->addresses, (std::vector<endpoint>{{"10.0.0.1", 7700}}));
}

const auto authority = identity::from_seed(50);

/// The members are the peers of these seeds. Version 0: a peer without a list.
std::shared_ptr<run_members> list_of(std::uint64_t version, std::vector<std::uint64_t> seeds,
                                     const identity& by = *authority) {
  auto out = std::make_shared<run_members>(by.key());
  std::vector<member_list::member> members;
  for (auto seed : seeds)
    members.push_back({identity::from_seed(seed)->id(), swarm_time::max()});
  if (version > 0) {
    EXPECT_TRUE(out->take(member_list::sign(by, version, members)->bytes()));
  }
  return out;
}

handshake::setup with_list(std::uint64_t who, bool dialled, std::shared_ptr<run_members> members) {
  auto out = setup_of(who, dialled);
  out.members = std::move(members);
  return out;
}

/// Passes all messages on until nobody has one; ann dials.
struct exchange {
  exchange(handshake& ann, handshake& bob) {
    std::vector<std::pair<bool, std::string>> under_way{{false, ann.hello()}, {true, bob.hello()}};
    for (std::size_t i = 0; i < under_way.size(); ++i) {
      auto [to_ann, message] = under_way[i];
      auto& end = to_ann ? at_ann : at_bob;
      auto step = (to_ann ? ann : bob).on_message(message);
      for (auto& next : step.send)
        under_way.emplace_back(!to_ann, next);
      sent += step.send.size();
      end = std::move(step);
    }
  }
  handshake::step at_ann, at_bob;
  std::size_t sent = 0; // behind the hellos
};

TEST(Handshake, BothEndsJudgeByTheNewerListWhoeverHasIt) {
  for (bool ann_has_it : {true, false})
    for (auto older : {list_of(0, {}), list_of(1, {7}), list_of(1, {})}) {
      auto newer = list_of(2, {1, 2});
      handshake ann{with_list(1, true, ann_has_it ? newer : older)};
      handshake bob{with_list(2, false, ann_has_it ? older : newer)};
      exchange talk{ann, bob};
      EXPECT_TRUE(talk.at_ann.peer) << to_string(talk.at_ann.why);
      EXPECT_TRUE(talk.at_bob.peer) << to_string(talk.at_bob.why);
      EXPECT_EQ(older->rank(), newer->rank()) << "it is passed on";
      EXPECT_EQ(talk.sent, 3U) << "two proofs and a list";
    }
  auto both = list_of(2, {1, 2});
  handshake ann{with_list(1, true, both)};
  handshake bob{with_list(2, false, list_of(2, {1, 2}))};
  EXPECT_EQ(exchange(ann, bob).sent, 2U) << "equal lists are not sent";
}

TEST(Handshake, APeerThatIsOnNoListIsToldSoAndGetsTheList) {
  auto old = list_of(1, {1, 2});
  auto now = list_of(2, {2, 3});
  handshake ann{with_list(1, true, old)};
  handshake bob{with_list(2, false, now)};
  exchange talk{ann, bob};
  EXPECT_EQ(talk.at_bob.why.code, ec::not_a_member);
  EXPECT_THAT(talk.at_bob.why.detail, HasSubstr("is not on the list of members (version 2)"));
  EXPECT_EQ(talk.at_ann.why.code, ec::not_a_member);
  EXPECT_THAT(talk.at_ann.why.detail, HasSubstr("send its id, " + to_string(ann.self())));
  EXPECT_EQ(old->rank(), now->rank());
}

TEST(Handshake, RunsOfOtherAuthoritiesOrOfNoneRefuseEachOther) {
  auto ours = list_of(1, {1, 2});
  auto theirs = list_of(9, {1, 2}, *identity::from_seed(51));
  auto reason = [](std::shared_ptr<run_members> of_ann, std::shared_ptr<run_members> of_bob) {
    handshake ann{with_list(1, true, std::move(of_ann))};
    handshake bob{with_list(2, false, std::move(of_bob))};
    auto step = bob.on_message(ann.hello());
    EXPECT_TRUE(started_wrongly(step.why));
    return step.why.detail;
  };
  EXPECT_EQ(reason(nullptr, ours), members_here);
  EXPECT_EQ(reason(ours, nullptr), members_there);
  EXPECT_EQ(reason(ours, theirs), another_authority);
}

TEST(Handshake, AListOutOfTurnTooLongOrForgedIsRefused) {
  auto newer = list_of(2, {1, 2});
  handshake ann{with_list(1, true, newer)};
  auto bob_of = [&](std::shared_ptr<run_members> list) {
    handshake bob{with_list(2, false, std::move(list))};
    EXPECT_EQ(bob.on_message(ann.hello()).why.code, ec::none);
    return bob;
  };
  auto first = bob_of(list_of(1, {}));
  auto sent = ann.on_message(first.hello()).send;
  ASSERT_EQ(sent.size(), 2U);
  EXPECT_EQ(bob_of(list_of(1, {})).on_message(sent[1]).why.code, ec::protocol_violation)
    << "before the proof";
  auto after_proof = [&] {
    auto bob = bob_of(list_of(1, {}));
    EXPECT_TRUE(bob.on_message(sent[0]).list_follows);
    return bob;
  };
  EXPECT_EQ(after_proof().on_message(std::string(list_message_bytes_max + 1, 'x')).why.code,
            ec::malformed);
  EXPECT_EQ(after_proof().on_message(sent[0]).why.code, ec::protocol_violation)
    << "a proof in its place";
  auto forged = sent[1];
  forged.back() = static_cast<char>(forged.back() ^ 1);
  EXPECT_EQ(after_proof().on_message(forged).why.code, ec::bad_signature);
  EXPECT_TRUE(after_proof().on_message(sent[1]).peer);
}

TEST(Handshake, BothEndsLearnTheOthersClaims) {
  handshake ann{setup_with(1, true, {17, agreement_of("0.003")})};
  handshake bob{setup_with(2, false, {18, nullptr})};
  conversation talk{ann, bob};
  ASSERT_TRUE(talk.at_bob.peer) << "without an agreement any peer is accepted";
  ASSERT_TRUE(talk.at_ann.peer);
  EXPECT_EQ(bob.claims().instance, 17U);
  EXPECT_FALSE(bob.claims().looks);
  ASSERT_TRUE(bob.claims().agreement);
  EXPECT_EQ(*bob.claims().agreement, *agreement_of("0.003"));
  EXPECT_EQ(ann.claims().instance, 18U);
  EXPECT_FALSE(ann.claims().agreement);
}

TEST(Handshake, OtherOptionsAreRefusedWithBothValuesAtBothEnds) {
  handshake ann{setup_with(1, true, {1, agreement_of("0.01")})};
  handshake bob{setup_with(2, false, {2, agreement_of("0.003")})};
  conversation talk{ann, bob};
  EXPECT_FALSE(talk.at_bob.peer);
  EXPECT_FALSE(talk.at_ann.peer);
  EXPECT_EQ(talk.at_bob.why.code, ec::agreement_mismatch);
  EXPECT_THAT(talk.at_bob.why.detail, HasSubstr("lr is 0.003 here and 0.01 there"));
  EXPECT_EQ(talk.at_ann.why.code, ec::agreement_mismatch);
  EXPECT_THAT(talk.at_ann.why.detail, HasSubstr("lr is 0.01 here and 0.003 there"));
}

// -- the name of the run --------------------------------------------------------------------------

/// Everything that an end sends to a peer of the run `guessed`, which claims to be right.
std::string told_to_a_stranger(bool we_dialled) {
  auto setup = setup_of(2, we_dialled, "a-secret-name");
  setup.claims = {2, agreement_of("0.00123")};
  handshake us{setup};
  handshake stranger{setup_of(1, !we_dialled, "guessed")};
  auto all = us.hello();
  auto greeted = us.on_message(stranger.hello());
  auto from_stranger = stranger.on_message(us.hello());
  for (const auto& message : greeted.send)
    all += message;
  // The stranger answers whatever it likes: its own proof, and ours sent back.
  auto replies = from_stranger.send;
  replies.insert(replies.end(), greeted.send.begin(), greeted.send.end());
  if (replies.empty()) {
    proto::HandshakeMessage made_up;
    made_up.mutable_proof()->set_signature(std::string(64, 's'));
    replies.push_back(made_up.SerializeAsString());
  }
  auto last = us.on_message(replies.front());
  EXPECT_EQ(last.why.code, ec::wrong_run);
  EXPECT_FALSE(last.peer);
  for (const auto& message : last.send)
    all += message;
  return all + last.why.detail;
}

TEST(Handshake, ANameIsToldToNobodyWhoHasNotShownToKnowIt) {
  for (bool we_dialled : {false, true}) {
    auto told = told_to_a_stranger(we_dialled);
    EXPECT_EQ(told.find("a-secret-name"), std::string::npos) << we_dialled;
    EXPECT_EQ(told.find("0.00123"), std::string::npos) << "an option";
    EXPECT_EQ(told.find("lr"), std::string::npos) << "an option's name";
  }
}

TEST(Handshake, TheNameIsNotSentToAMemberEither) {
  auto setup = [](std::uint64_t who, bool dialled) {
    auto out = setup_of(who, dialled, "a-secret-name");
    out.claims = {who, agreement_of("0.00123")};
    return out;
  };
  handshake ann{setup(1, true)};
  handshake bob{setup(2, false)};
  conversation talk{ann, bob};
  ASSERT_TRUE(talk.at_ann.peer);
  auto all = ann.hello() + bob.hello() + talk.ann_proof + talk.at_bob.send.at(0);
  EXPECT_EQ(all.find("a-secret-name"), std::string::npos);
  EXPECT_EQ(all.find("0.00123"), std::string::npos);
}

TEST(Handshake, TheAcceptorShowsNothingBeforeTheDiallerHasShownThatItKnowsTheRun) {
  handshake bob{setup_of(2, false)};
  auto greeted = bob.on_message(handshake{setup_of(1, true, "guessed")}.hello());
  EXPECT_TRUE(greeted.send.empty()) << "not even what could be tried against guessed names";
  EXPECT_EQ(greeted.why.code, ec::none);
}

TEST(Handshake, KnowledgeShownOnAnotherConnectionIsRefused) {
  handshake ann{setup_of(1, true)};
  auto proof = ann.on_message(handshake{setup_of(2, false)}.hello()).send.at(0);
  // The same dialler and acceptor, but the acceptor has drawn another nonce.
  handshake later{setup_of(2, false, "demo", 77)};
  (void)later.on_message(ann.hello());
  expect_refused(later.on_message(proof), ec::wrong_run);
}

TEST(Handshake, AnHonestMistakeInTheNameIsExplainedToBoth) {
  handshake ann{setup_of(1, true, "demmo")};
  handshake bob{setup_of(2, false, "demo")};
  conversation talk{ann, bob};
  for (const auto& why : {talk.at_ann.why, talk.at_bob.why}) {
    EXPECT_EQ(why.code, ec::wrong_run);
    EXPECT_THAT(why.detail, HasSubstr("this peer belongs to another run"));
    EXPECT_THAT(why.detail, HasSubstr("the run's name must be the same on all peers"));
  }
}

handshake::setup with_key(std::uint64_t who, bool dialled, char key) {
  auto out = setup_of(who, dialled);
  swarm_key of;
  of.bytes.fill(static_cast<std::byte>(key));
  out.run = std::make_shared<const run_secret>(of);
  return out;
}

TEST(Handshake, PeersWithTheSameKeyLinkWhateverTheirLabels) {
  handshake ann{with_key(1, true, 'k')};
  handshake bob{with_key(2, false, 'k')};
  conversation talk{ann, bob};
  EXPECT_TRUE(talk.at_ann.peer);
  EXPECT_TRUE(talk.at_bob.peer);
}

TEST(Handshake, AnotherKeyIsExplainedToBoth) {
  handshake ann{with_key(1, true, 'k')};
  handshake bob{with_key(2, false, 'l')};
  conversation talk{ann, bob};
  for (const auto& why : {talk.at_ann.why, talk.at_bob.why}) {
    EXPECT_EQ(why.code, ec::wrong_run);
    EXPECT_THAT(why.detail, HasSubstr("different swarm keys"));
  }
}

TEST(Handshake, APeerWithAKeyAndOneWithoutSayWhichEndHasWhat) {
  for (bool ann_has_key : {true, false}) {
    handshake ann{ann_has_key ? with_key(1, true, 'k') : setup_of(1, true)};
    handshake bob{ann_has_key ? setup_of(2, false) : with_key(2, false, 'k')};
    auto at_ann = ann.on_message(bob.hello());
    auto at_bob = bob.on_message(ann.hello());
    for (const auto* step : {&at_ann, &at_bob}) {
      bool has_key = (step == &at_ann) == ann_has_key;
      expect_refused(*step, ec::wrong_run);
      EXPECT_EQ(step->why.detail.starts_with(has_key
                                               ? "this peer has a swarm key, the other end has "
                                                 "only a run's name"
                                               : "this peer has only a run's name, the other "
                                                 "end has a swarm key"),
                true)
        << step->why.detail;
    }
  }
}

TEST(Handshake, AProofIsGoodForOneEncryptedChannelOnly) {
  auto ann_has = setup_of(1, true);
  auto bob_has = setup_of(2, false);
  ann_has.channel = bob_has.channel = std::string(32, 'c');
  ann_has.certified = identity::from_seed(2)->key();
  {
    handshake ann{ann_has};
    handshake bob{bob_has};
    conversation talk{ann, bob};
    EXPECT_TRUE(talk.at_ann.peer);
    EXPECT_TRUE(talk.at_bob.peer);
  }
  // Somebody who ends both channels passes the messages on.
  bob_has.channel = std::string(32, 'd');
  handshake ann{ann_has};
  handshake bob{bob_has};
  conversation talk{ann, bob};
  EXPECT_FALSE(talk.at_ann.peer);
  EXPECT_FALSE(talk.at_bob.peer);
}

TEST(Handshake, ACertificateOfAnotherKeyIsRefusedBeforeAnythingIsShown) {
  auto ann_has = setup_of(1, true);
  ann_has.channel = std::string(32, 'c');
  ann_has.certified = identity::from_seed(3)->key();
  auto step = handshake{ann_has}.on_message(handshake{setup_of(2, false)}.hello());
  expect_refused(step, ec::bad_signature);
  EXPECT_THAT(step.why.detail, HasSubstr("somebody stands between the two peers"));
}

// -- clocks ---------------------------------------------------------------------------------------

TEST(Handshake, ClocksThatAreFarApartAreRefusedWithOneSentenceAtBothEnds) {
  handshake ann{setup_at(1, true, 60s)};
  handshake bob{setup_at(2, false, 0s)};
  conversation talk{ann, bob};
  EXPECT_EQ(talk.at_bob.why.code, ec::clock_skew);
  EXPECT_THAT(talk.at_bob.why.detail,
              HasSubstr("the clock there is 60.0 s ahead of the clock here, more than 15 s"));
  EXPECT_EQ(talk.at_ann.why.code, ec::clock_skew);
  EXPECT_THAT(talk.at_ann.why.detail, HasSubstr("the clock there is 60.0 s behind the clock here"));
  EXPECT_THAT(talk.at_ann.why.detail, HasSubstr("NTP"));
  ASSERT_TRUE(talk.at_bob.clock);
  EXPECT_EQ(talk.at_bob.clock->offset, 60s);
  EXPECT_EQ(talk.at_bob.clock->peer, identity::from_seed(1)->id());
  ASSERT_TRUE(talk.at_ann.clock);
  EXPECT_EQ(talk.at_ann.clock->offset, -60s);
}

TEST(Handshake, ClocksThatAreALittleApartLinkAndReportIt) {
  handshake ann{setup_at(1, true, -1s)};
  handshake bob{setup_at(2, false, 0s)};
  conversation talk{ann, bob};
  ASSERT_TRUE(talk.at_ann.peer);
  ASSERT_TRUE(talk.at_bob.peer);
  ASSERT_TRUE(talk.at_bob.clock);
  EXPECT_EQ(talk.at_bob.clock->offset, -1s);
}

TEST(Handshake, ASlowConnectionIsNoOffset) {
  // Ann read her clock 10 s before Bob reads her hello, on a connection that is 20 s old.
  handshake ann{setup_at(1, true, -10s)};
  handshake bob{setup_at(2, false, 0s, 20s)};
  conversation talk{ann, bob};
  EXPECT_TRUE(talk.at_bob.peer) << to_string(talk.at_bob.why);
  ASSERT_TRUE(talk.at_bob.clock);
  EXPECT_EQ(talk.at_bob.clock->offset, 0s);
}

TEST(Handshake, AnyTimeThatAPeerClaimsIsTolerated) {
  for (auto claimed : {swarm_time::min(), swarm_time::max()}) {
    auto odd = setup_of(1, true);
    odd.clock = std::make_shared<const fixed_clock>(claimed);
    odd.began = claimed;
    handshake ann{odd};
    handshake bob{setup_at(2, false, 0s)};
    conversation talk{ann, bob};
    EXPECT_EQ(talk.at_bob.why.code, ec::clock_skew);
    EXPECT_EQ(talk.at_ann.why.code, ec::clock_skew);
  }
}

TEST(Handshake, ATimeThatTheProofDoesNotCoverIsRefused) {
  handshake ann{setup_at(1, true, 0s)};
  handshake bob{setup_at(2, false, 0s)};
  proto::HandshakeMessage hello;
  ASSERT_TRUE(hello.ParseFromString(ann.hello()));
  hello.mutable_hello()->set_time(static_cast<std::uint64_t>(to_nanoseconds(noon + 60s)));
  (void)bob.on_message(hello.SerializeAsString());
  auto step = bob.on_message(ann.on_message(bob.hello()).send.at(0));
  EXPECT_EQ(step.why.code, ec::bad_signature);
  EXPECT_FALSE(step.clock) << "nothing unproved is reported";
}

TEST(Handshake, AClockOfAStrangerIsNotReported) {
  auto stranger = setup_at(1, true, 60s);
  stranger.run = secret_of("guessed");
  handshake ann{stranger};
  handshake bob{setup_at(2, false, 0s)};
  conversation talk{ann, bob};
  EXPECT_EQ(talk.at_bob.why.code, ec::wrong_run);
  EXPECT_FALSE(talk.at_bob.clock);
}

TEST(Handshake, ADiallerThatAloneSeesTheOffsetTellsAnOpenPeer) {
  // Bob tolerates more, so that he has completed the handshake when Ann refuses.
  auto patient = setup_at(2, false, 0s);
  patient.clocks.refused = 100s;
  handshake ann{setup_at(1, true, 60s)};
  handshake bob{patient};
  conversation talk{ann, bob};
  EXPECT_TRUE(talk.at_bob.peer);
  EXPECT_EQ(talk.at_ann.why.code, ec::clock_skew);
  EXPECT_TRUE(talk.at_ann.peer_is_open);
  ASSERT_EQ(talk.at_ann.send.size(), 1U);
  auto told = read_denial(talk.at_ann.send.at(0));
  EXPECT_EQ(told.code, ec::clock_skew);
  EXPECT_THAT(told.detail, HasSubstr("ahead"));
}

TEST(Handshake, ADiallerThatOnlyTheAcceptorRefusesLearnsTheReason) {
  auto patient = setup_at(1, true, 60s);
  patient.clocks.refused = 100s;
  handshake ann{patient};
  handshake bob{setup_at(2, false, 0s)};
  conversation talk{ann, bob};
  EXPECT_FALSE(talk.at_ann.peer);
  EXPECT_EQ(talk.at_ann.why.code, ec::clock_skew);
  EXPECT_THAT(talk.at_ann.why.detail, HasSubstr("refused by the peer: the clock there"));
}

// -- proofs ---------------------------------------------------------------------------------------

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
  handshake there{setup_with(1, true, {2, nullptr})};
  auto setup = setup_with(1, false, {1, nullptr});
  setup.nonce.bytes.fill(std::byte{9});
  handshake here{setup};
  conversation talk{there, here};
  for (const auto& step : {talk.at_bob, talk.at_ann}) {
    EXPECT_EQ(step.why.code, ec::duplicate_identity);
    EXPECT_THAT(step.why.detail, HasSubstr("another process uses this identity"));
  }
}

TEST(Handshake, AStrangerThatShowsOurKeyIsNoSecondProcess) {
  // It knows our key from an earlier hello, but neither the secret of it nor the run.
  handshake here{setup_with(1, false, {1, nullptr})};
  handshake stranger{setup_of(1, true, "guessed", 9)};
  EXPECT_EQ(here.on_message(stranger.hello()).why.code, ec::none);
  expect_refused(here.on_message(stranger.on_message(here.hello()).send.at(0)), ec::wrong_run);
}

TEST(Handshake, AnAgreementAsLargeAsCanBeFitsIntoAMessage) {
  auto largest = std::make_shared<run_agreement>();
  for (int i = 0; i < 10; ++i)
    (void)largest->add(
      {"f" + std::to_string(i), std::string(run_agreement::text_bytes_max, 'x'), ""});
  auto left = run_agreement::bytes_max - largest->encode().size();
  ASSERT_TRUE(largest->add({"rest", std::string(left - 10, 'x'), ""}));
  ASSERT_EQ(largest->encode().size(), run_agreement::bytes_max);
  auto other = std::make_shared<run_agreement>(*largest);
  ASSERT_EQ(largest->encode().size(), other->encode().size());
  handshake ann{setup_with(1, true, {1, largest})};
  handshake bob{setup_with(2, false, {2, other})};
  conversation talk{ann, bob};
  EXPECT_TRUE(talk.at_bob.peer);
  EXPECT_TRUE(talk.at_ann.peer);
}

TEST(Handshake, AnotherRunIsRefused) {
  handshake ann{setup_of(1, true, "other")};
  auto bob = greeted_bob(ann);
  expect_refused(bob.on_message(ann.on_message(bob.hello()).send.at(0)), ec::wrong_run);
}

TEST(Handshake, AnotherVersionIsRefused) {
  proto::HandshakeMessage hello;
  ASSERT_TRUE(hello.ParseFromString(handshake{setup_of(1, true)}.hello()));
  hello.mutable_hello()->set_version(protocol_version + 1);
  expect_refused(handshake{setup_of(2, false)}.on_message(hello.SerializeAsString()),
                 ec::wrong_version);
}

TEST(Handshake, AConnectionToOneselfIsRefused) {
  handshake dialling{setup_of(1, true)};
  handshake accepting{setup_of(1, false, "demo", 9)};
  conversation talk{dialling, accepting};
  EXPECT_EQ(talk.at_bob.why, (failure{ec::duplicate_identity, "a peer dialled itself"}));
  EXPECT_EQ(talk.at_ann.why, (failure{ec::duplicate_identity, "a peer dialled itself"}));
}

TEST(Handshake, WhoMeetsItselfInsteadOfThePeerThatItExpectsIsToldSo) {
  auto setup = setup_of(1, true);
  setup.expected = identity::from_seed(3)->id();
  handshake dialling{setup};
  handshake accepting{setup_of(1, false, "demo", 9)};
  conversation talk{dialling, accepting};
  EXPECT_EQ(talk.at_ann.why, (failure{ec::duplicate_identity, "a peer dialled itself"}));
}

TEST(Handshake, AnotherPeerThanExpectedIsRefused) {
  auto setup = setup_of(1, true);
  setup.expected = identity::from_seed(3)->id();
  handshake ann{setup};
  handshake bob{setup_of(2, false)};
  conversation talk{ann, bob};
  EXPECT_EQ(talk.at_ann.why.code, ec::bad_signature);
  EXPECT_TRUE(talk.at_ann.peer_is_open) << "Bob has completed the handshake";
}

TEST(Handshake, AProofOfAnotherConnectionIsRefused) {
  handshake ann{setup_of(1, true)};
  handshake bob{setup_of(2, false)};
  (void)ann.on_message(bob.hello());
  auto recorded = ann.hello();
  handshake ann_again{setup_of(1, true)};
  auto proof = ann_again.on_message(bob.hello()).send[0];
  // An eavesdropper that knows the run replays hello and signature on a connection with another
  // nonce.
  handshake later{setup_of(2, false, "demo", 77)};
  ASSERT_TRUE(later.on_message(recorded).send.empty());
  handshake eavesdropper{setup_of(1, true)};
  auto right = eavesdropper.on_message(later.hello()).send.at(0);
  proto::HandshakeMessage old;
  proto::HandshakeMessage fresh;
  ASSERT_TRUE(old.ParseFromString(proof));
  ASSERT_TRUE(fresh.ParseFromString(right));
  fresh.mutable_proof()->set_signature(old.proof().signature());
  expect_refused(later.on_message(fresh.SerializeAsString()), ec::bad_signature);
}

TEST(Handshake, OnesOwnProofSentBackIsRefused) {
  // An attacker with its own key and Ann's nonce: Ann's proof still names the role of a dialler.
  handshake ann{setup_of(1, true)};
  auto attacker = setup_of(5, false, "demo", 1);
  auto proof = ann.on_message(handshake{attacker}.hello()).send[0];
  expect_refused(ann.on_message(proof), ec::wrong_run);
}

TEST(Handshake, ASignatureOfAnotherPeerIsRefused) {
  for (const auto& by :
       {std::string{identity::from_seed(3)->sign("whatever").raw()}, std::string{"short"}}) {
    handshake ann{setup_of(1, true)};
    auto bob = greeted_bob(ann);
    proto::HandshakeMessage proof;
    ASSERT_TRUE(proof.ParseFromString(ann.on_message(bob.hello()).send.at(0)));
    proof.mutable_proof()->set_signature(by);
    expect_refused(bob.on_message(proof.SerializeAsString()), ec::bad_signature);
  }
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
