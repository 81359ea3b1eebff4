#include "actors/state/state_donor.hpp"

#include "runtime/core/random.hpp"
#include "runtime/crypto/digest.hpp"
#include "runtime/status/run_curves.hpp"
#include "tests/actors/state/state_content.hpp"
#include "tests/support/actor_test.hpp"

namespace waggle::testing {

/// The fake trainer's answer, and its delay.
struct trainer_script {
  state_snapshot snapshot;
  failure refuse;        // if its code is set
  milliseconds takes{0}; // for a snapshot
  int asked = 0;
  get_state_snapshot wanted; // the last request
};
struct deliver_later {
  std::shared_ptr<caf::typed_response_promise<state_snapshot>> promise;
};
using slow_trainer = trainer_actor::extend<caf::reacts_to<deliver_later>>;

} // namespace waggle::testing

CAF_ALLOW_UNSAFE_MESSAGE_TYPE(waggle::testing::deliver_later)

namespace waggle::testing {
namespace {

slow_trainer::behavior_type fake_trainer(slow_trainer::pointer self,
                                         std::shared_ptr<trainer_script> script) {
  return {
    [](start_training) {},
    [](stop_training) -> training_status { return {}; },
    [](get_training_status) -> training_status { return {}; },
    [](pause_training) -> training_status { return {}; },
    [](resume_training) -> training_status { return {}; },
    [self, script](const get_state_snapshot& wanted) -> caf::result<state_snapshot> {
      ++script->asked;
      script->wanted = wanted;
      if (script->refuse.code != ec::none)
        return to_caf(script->refuse);
      if (script->takes.count() == 0)
        return script->snapshot;
      auto promise = std::make_shared<caf::typed_response_promise<state_snapshot>>(
        self->make_response_promise<state_snapshot>());
      self->delayed_send(self, script->takes, deliver_later{promise});
      return *promise;
    },
    [](const swarm_progress&) {},
    [](const group_view&) {},
    [](const round_called&) {},
    [](const peer_connected&) {},
    [](const peer_disconnected&) {},
    [](const dht_status&) {},
    [script](const deliver_later& msg) { msg.promise->deliver(script->snapshot); },
  };
}

struct StateDonor : actor_test {
  std::shared_ptr<trainer_script> script = std::make_shared<trainer_script>();
  payload bytes; // of the snapshot
  node_context ctx = test_context(1, wall);
  donor_config config{.chunk_bytes = 4096, .downloads_max = 2};
  slow_trainer trainer = spawn(fake_trainer, script);
  state_donor_actor donor;

  void SetUp() override {
    become(7, 3 * 4096 + 5);
    donor = spawn<state_donor>(ctx, config, snapshot_source_actor{trainer});
  }

  void become(std::uint64_t epoch, std::size_t size) {
    bytes = payload_of(content_of(size, epoch));
    script->snapshot = {epoch_id{epoch}, sha256("p"), source_of(bytes), {}, sha256(bytes.view())};
  }
  auto open(std::uint64_t reader, const std::string& host = {}) {
    return ask_later<outbound_answer>(donor,
                                      inbound_call{test_peer(reader), wire::open_state{}, host});
  }
  result<outbound_answer> chunk(std::uint64_t reader, const digest& content, std::uint32_t index,
                                const std::string& host = {}) {
    return ask<outbound_answer>(
      donor, inbound_call{test_peer(reader), wire::get_state_chunk{content, index}, host});
  }
  static ec code(const result<outbound_answer>& answer) {
    return answer ? ec::none : answer.error().code;
  }
  static wire::state_header header(const outbound_answer& answer) {
    const auto* found = std::get_if<wire::state_header>(&answer.what);
    return found ? *found : wire::state_header{};
  }
};

TEST_F(StateDonor, OffersWhatTheTrainerHasWithItsHash) {
  auto answer = open(2).get();
  auto offer = header(*answer);
  EXPECT_EQ(offer.epoch, epoch_id{7});
  EXPECT_EQ(offer.bytes, 3 * 4096U + 5);
  EXPECT_EQ(offer.chunk_bytes, 4096U);
  EXPECT_EQ(offer.content, sha256(bytes.view()));
  EXPECT_EQ(offer.parameters, sha256("p"));
  EXPECT_EQ(answer->body.size, 0U);
}

TEST_F(StateDonor, GivesSlicesOfASnapshotInMemoryWithoutACopy) {
  auto content = header(*open(2).get()).content;
  for (std::uint32_t index = 0; index < 4; ++index) {
    auto answer = chunk(2, content, index);
    ASSERT_TRUE(answer) << index;
    EXPECT_EQ(std::get<wire::state_chunk>(answer->what).index, index);
    EXPECT_EQ(answer->body.data.get(), bytes.data.get() + index * 4096);
    EXPECT_EQ(answer->body.size, index < 3 ? 4096U : 5U);
  }
  EXPECT_EQ(exported(*ctx.metrics, "waggle_state_bytes_total{direction=\"out\""), 3 * 4096 + 5);
}

TEST_F(StateDonor, GivesTheCurvesOfTheRun) {
  EXPECT_EQ(code(chunk(2, {}, 0)), ec::not_found) << "this peer keeps none";
  ctx.curves = std::make_shared<run_curves>();
  donor = spawn<state_donor>(ctx, config, snapshot_source_actor{trainer});
  EXPECT_EQ(code(chunk(2, {}, 0)), ec::not_found) << "no epoch has ended";
  training_status status;
  status.phase = trainer_phase::training;
  for (status.epoch = epoch_id{}; status.epoch.value() < 5; status.epoch = status.epoch.next())
    ctx.curves->on_status(status, {}, ctx.wall->now());
  auto answer = chunk(2, {}, 0);
  EXPECT_EQ(as_string_view(answer->body.view()), ctx.curves->image());
}

/// Like a file: a piece is copied when it is read.
class stored final : public byte_source {
public:
  stored(payload bytes, std::shared_ptr<bool> broken)
    : bytes_(std::move(bytes)), broken_(std::move(broken)) {}
  [[nodiscard]] std::uint64_t size() const override { return bytes_.size; }
  status read(std::uint64_t at, std::span<std::byte> out) const override {
    if (*broken_)
      return failure{ec::io_error, "the disk is broken"};
    return borrowed_bytes{bytes_.view()}.read(at, out);
  }

private:
  payload bytes_;
  std::shared_ptr<bool> broken_;
};

TEST_F(StateDonor, GivesPiecesOfASnapshotInAFileAndSaysIfItCannotBeRead) {
  auto broken = std::make_shared<bool>(false);
  script->snapshot.state = std::make_shared<stored>(bytes, broken);
  auto content = header(*open(2).get()).content;
  for (std::uint32_t index = 0; index < 3; ++index) {
    auto answer = chunk(2, content, index);
    ASSERT_TRUE(answer) << index;
    EXPECT_EQ(as_string_view(answer->body.view()),
              as_string_view(bytes.view().subspan(index * 4096, 4096)));
  }
  *broken = true;
  EXPECT_EQ(chunk(2, content, 3).error().code, ec::io_error);
}

TEST_F(StateDonor, RefusesChunksOfWhatItDoesNotHave) {
  auto content = header(*open(2).get()).content;
  EXPECT_EQ(chunk(2, sha256("nothing"), 0).error().code, ec::not_found);
  EXPECT_EQ(chunk(2, content, 4).error().code, ec::protocol_violation);
  EXPECT_EQ(chunk(2, content, 4'294'967'295U).error().code, ec::protocol_violation);
}

TEST_F(StateDonor, RefusesWhatIsNotForADonor) {
  auto answer = ask<outbound_answer>(donor, inbound_call{test_peer(2), wire::dht_ping{}});
  EXPECT_EQ(answer.error().code, ec::protocol_violation);
}

TEST_F(StateDonor, IsOverloadedBeyondItsNumberOfDownloads) {
  auto content = header(*open(2).get()).content;
  ASSERT_TRUE(chunk(2, content, 0));
  ASSERT_TRUE(chunk(3, content, 0));
  EXPECT_TRUE(open(4).get()) << "an offer is no download";
  EXPECT_EQ(chunk(4, content, 0).error().code, ec::overloaded);
  EXPECT_TRUE(chunk(3, content, 1)) << "a peer that downloads goes on";
}

// --share-state false
TEST_F(StateDonor, ThatSharesNothingSaysSoAndAsksNobodyForASnapshot) {
  auto mine = config;
  mine.shares = false;
  donor = spawn<state_donor>(ctx, mine, snapshot_source_actor{trainer});
  auto refused = open(2);
  ASSERT_TRUE(refused.answered() && !refused.get());
  EXPECT_EQ(refused.get().error().code, ec::no_donor);
  EXPECT_NE(refused.get().error().detail.find("gives its state to nobody"), std::string::npos);
  EXPECT_EQ(script->asked, 0);
}

TEST_F(StateDonor, PreparesABoundedNumberOfOffers) {
  script->takes = 5s;
  std::vector<decltype(open(2))> waiting;
  for (std::uint64_t n = 0; n < 64; ++n)
    waiting.push_back(open(2 + n));
  auto another = open(100);
  ASSERT_TRUE(another.answered());
  EXPECT_EQ(another.get().error().code, ec::overloaded);
  pass(6s);
  for (auto& each : waiting)
    EXPECT_TRUE(each.get());
}

TEST_F(StateDonor, PreparesOneOfferAtATimeForAPeer) {
  script->takes = 5s;
  auto first = open(2);
  auto second = open(2);
  ASSERT_TRUE(second.answered());
  EXPECT_EQ(code(second.get()), ec::overloaded);
  EXPECT_EQ(script->asked, 1);
  auto of_another = open(3);
  pass(6s);
  EXPECT_TRUE(first.get());
  EXPECT_TRUE(of_another.get());
  auto third = open(2);
  pass(6s);
  EXPECT_TRUE(third.get());
}

TEST_F(StateDonor, PreparesNotMoreThanHalfOfTheOffersForOneHost) {
  script->takes = 5s;
  int accepted = 0;
  for (std::uint64_t n = 0; n < 64; ++n)
    accepted += open(100 + n, "10.0.0.1").answered() ? 0 : 1;
  EXPECT_EQ(accepted, 32);
  auto of_another = open(2, "10.0.0.2");
  EXPECT_FALSE(of_another.answered());
  pass(6s);
  EXPECT_TRUE(of_another.get());
}

TEST_F(StateDonor, AHostWithSeveralDownloadsLosesOneToAnotherHost) {
  auto content = header(*open(2, "a").get()).content;
  ASSERT_TRUE(chunk(2, content, 0, "a"));
  ASSERT_TRUE(chunk(3, content, 0, "a"));
  pass(1s);
  ASSERT_TRUE(chunk(2, content, 1, "a"));
  EXPECT_TRUE(chunk(4, content, 0, "b"));
  EXPECT_EQ(code(chunk(3, content, 1, "a")), ec::overloaded) << "it waited longer than the other";
  EXPECT_TRUE(chunk(2, content, 2, "a"));
  EXPECT_EQ(code(chunk(5, content, 0, "c")), ec::overloaded) << "no host has two any more";
  EXPECT_EQ(code(chunk(6, content, 0, "b")), ec::overloaded);
  EXPECT_TRUE(chunk(4, content, 1, "b"));
}

TEST_F(StateDonor, AReaderKeepsItsPlaceOnlyWithChunksThatAreNewToIt) {
  auto content = header(*open(2, "a").get()).content;
  ASSERT_TRUE(chunk(2, content, 0, "a"));
  ASSERT_TRUE(chunk(3, content, 0, "b"));
  pass(29s);
  ASSERT_TRUE(chunk(2, content, 0, "a"));
  ASSERT_TRUE(chunk(3, content, 1, "b"));
  pass(12s);
  EXPECT_TRUE(chunk(4, content, 0, "c")) << "the reader that repeats itself makes room";
  EXPECT_EQ(code(chunk(2, content, 0, "a")), ec::overloaded);
  EXPECT_TRUE(chunk(3, content, 2, "b")) << "the one that moves on stays";
}

TEST_F(StateDonor, OffersThatNobodyTakesHoldABoundedNumberOfSnapshots) {
  auto content = header(*open(2).get()).content;
  ASSERT_TRUE(chunk(2, content, 0));
  std::vector<std::weak_ptr<const byte_source>> held;
  for (std::uint64_t n = 10; n < 30; ++n) {
    become(n, 4096);
    held.push_back(script->snapshot.state);
    ASSERT_TRUE(open(n).get());
    pass(10ms);
  }
  auto alive = std::count_if(held.begin(), held.end(), [](const auto& s) { return !s.expired(); });
  EXPECT_LE(alive, 2 + 1);
  EXPECT_FALSE(held.back().expired());
  EXPECT_TRUE(chunk(2, content, 1)) << "the one that is downloaded stays";
}

TEST_F(StateDonor, WhoGotTheLastChunkMakesRoom) {
  auto content = header(*open(2).get()).content;
  ASSERT_TRUE(chunk(3, content, 0));
  for (std::uint32_t index = 0; index < 4; ++index)
    ASSERT_TRUE(chunk(2, content, index));
  EXPECT_TRUE(chunk(4, content, 0));
}

TEST_F(StateDonor, ASilentReaderMakesRoomAndItsSnapshotIsLetGo) {
  auto content = header(*open(2).get()).content;
  ASSERT_TRUE(open(3).get());
  std::weak_ptr<const byte_source> held = script->snapshot.state;
  script->snapshot = {};
  pass(20s);
  EXPECT_TRUE(chunk(2, content, 0)) << "still offered";
  pass(45s);
  EXPECT_TRUE(held.expired());
  EXPECT_EQ(chunk(2, content, 0).error().code, ec::not_found);
  become(8, 4096);
  EXPECT_TRUE(open(4).get());
}

TEST_F(StateDonor, KeepsASnapshotThatIsReadWhileTheTrainerGoesOn) {
  auto old = header(*open(2).get());
  become(8, 2 * 4096);
  auto young = header(*open(3).get());
  EXPECT_EQ(young.epoch, epoch_id{8});
  EXPECT_NE(young.content, old.content);
  EXPECT_TRUE(chunk(2, old.content, 1));
  EXPECT_TRUE(chunk(3, young.content, 1));
}

TEST_F(StateDonor, APeerThatOpensAgainAndAgainHoldsOneSnapshot) {
  std::vector<std::weak_ptr<const byte_source>> held;
  for (std::uint64_t epoch = 10; epoch < 20; ++epoch) {
    become(epoch, 4096);
    held.push_back(script->snapshot.state);
    ASSERT_TRUE(open(2).get());
  }
  for (std::size_t i = 0; i + 1 < held.size(); ++i)
    EXPECT_TRUE(held[i].expired()) << i;
  EXPECT_FALSE(held.back().expired());
}

TEST_F(StateDonor, APeerThatReadsEverySnapshotWithoutOpeningHoldsOne) {
  std::vector<std::weak_ptr<const byte_source>> held;
  for (std::uint64_t epoch = 10; epoch < 20; ++epoch) {
    become(epoch, 2 * 4096);
    held.push_back(script->snapshot.state);
    auto content = header(*open(3).get()).content;
    ASSERT_TRUE(chunk(2, content, 0));
    pass(1s);
  }
  auto alive = std::count_if(held.begin(), held.end(), [](const auto& s) { return !s.expired(); });
  EXPECT_LE(alive, 2) << "the one that it has read before, and the newest";
  EXPECT_FALSE(held.back().expired());
}

TEST_F(StateDonor, ThePeerThatOpensLastCanReadHoweverManyOthersHold) {
  for (std::uint64_t n = 10; n < 30; ++n) {
    become(n, 2 * 4096);
    auto content = header(*open(n).get()).content; // all at one time
    EXPECT_TRUE(chunk(2, content, 0)) << n;
  }
}

TEST_F(StateDonor, PassesOnWhyTheTrainerHasNoState) {
  script->refuse = {ec::not_ready, "still joining"};
  EXPECT_EQ(open(2).get().error().code, ec::not_ready);
  script->refuse = {};
  EXPECT_TRUE(open(2).get()) << "a refused request takes no slot";
  EXPECT_TRUE(open(3).get());
}

TEST_F(StateDonor, ATrainerThatDoesNotAnswerIsATimeout) {
  script->takes = 3600s;
  auto first = open(2);
  auto second = open(3);
  pass(31s);
  ASSERT_TRUE(first.answered());
  EXPECT_EQ(first.get().error().code, ec::timeout);
  EXPECT_EQ(second.get().error().code, ec::timeout);
  script->takes = 0ms;
  EXPECT_TRUE(open(4).get());
  EXPECT_TRUE(open(5).get());
}

TEST_F(StateDonor, AsksForTheHistoryAndTheEpochThatItsReaderWants) {
  auto question = wire::open_state{sha256("branch"), epoch_id{6}};
  ASSERT_TRUE(ask<outbound_answer>(donor, inbound_call{test_peer(2), question}).ok());
  EXPECT_EQ(script->wanted.branch, sha256("branch"));
  EXPECT_EQ(script->wanted.epoch_min, epoch_id{6});
  EXPECT_TRUE(script->wanted.owner.is_zero());
}

TEST_F(StateDonor, AsksForWhatAPeerHasLeftAndTakesItOnlyFromThatPeer) {
  auto leaver = test_peer(2);
  wire::open_state question{sha256("branch"), epoch_id{6}, leaver.id, false};
  ASSERT_TRUE(ask<outbound_answer>(donor, inbound_call{test_peer(3), question}).ok());
  EXPECT_EQ(script->wanted.owner, leaver.id);
  EXPECT_EQ(script->wanted.from, test_peer(3));
  EXPECT_FALSE(script->wanted.leaves);
  question.leaves = true;
  ASSERT_TRUE(ask<outbound_answer>(donor, inbound_call{leaver, question}).ok());
  EXPECT_EQ(script->wanted.from, leaver);
  EXPECT_TRUE(script->wanted.leaves);
  auto asked = script->asked;
  auto of_another = ask<outbound_answer>(donor, inbound_call{test_peer(3), question});
  EXPECT_EQ(of_another.error().code, ec::protocol_violation);
  EXPECT_EQ(script->asked, asked);
  question.owner = ctx.record.id; // a peer says that it has what this one has left
  ASSERT_TRUE(ask<outbound_answer>(donor, inbound_call{test_peer(3), question}).ok());
  EXPECT_EQ(script->wanted.from, test_peer(3));
}

} // namespace
} // namespace waggle::testing
