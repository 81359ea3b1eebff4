#include "actors/group_helper.hpp"

#include <gtest/gtest.h>

#include "runtime/crypto/digest.hpp"
#include "runtime/training/training_state.hpp"
#include "tests/support/actor_test.hpp"

namespace waggle::testing {
namespace {

/// A helper and the requests that it sends. The test answers them.
struct GroupHelper : actor_test {
  GroupHelper() {
    helper_peers peers;
    peers.averager = averager = spawn_averager();
    peers.tracker = spawn_tracker();
    peers.switchboard = spawn_switchboard();
    peers.exporter = spawn_exporter();
    helper = sys.spawn<group_helper>(ctx, help_config{}, peers);
    keep(helper);
    settle();
  }
  ~GroupHelper() override { end_actors(); }

  // -- the others ---------------------------------------------------------------------------------

  group_averager_actor spawn_averager() {
    auto handle =
      sys.spawn([this](group_averager_actor::pointer self) -> group_averager_actor::behavior_type {
        return {
          [](const inbound_call&) -> caf::result<outbound_answer> { return to_caf(ec::internal); },
          [this](const inbound_event&) { rounds.back().deliver(ended); }, // see end_round
          [](const peer_connected&) {},
          [](const peer_disconnected&) {},
          [](const describe_vector&) {},
          [](const found_group&) -> caf::result<group_view> { return to_caf(ec::not_ready); },
          [this](const enter_group& msg) -> caf::result<group_view> {
            entered.push_back(msg);
            if (refuse_entry.code != ec::none)
              return to_caf(refuse_entry);
            return group;
          },
          [this](quit_group) { ++quits; },
          [this, self](const average_in_group& msg) -> caf::result<group_round> {
            asked.push_back(msg);
            rounds.push_back(self->make_response_promise<group_round>());
            return rounds.back();
          },
        };
      });
    keep(handle);
    return handle;
  }
  progress_tracker_actor spawn_tracker() {
    auto handle =
      sys.spawn([this](progress_tracker_actor::pointer) -> progress_tracker_actor::behavior_type {
        return {
          [](const inbound_call&) -> caf::result<outbound_answer> { return to_caf(ec::internal); },
          [](const inbound_event&) {},
          [this](const report_progress& msg) { reports.push_back(msg); },
          [](get_swarm_progress) { return swarm_progress{}; },
          [](announce_departure) {},
          [](const peer_connected&) {},
          [](const peer_disconnected&) {},
        };
      });
    keep(handle);
    return handle;
  }
  /// Its peers serve `image`, in one chunk.
  switchboard_actor spawn_switchboard() {
    auto handle =
      sys.spawn([this](switchboard_actor::pointer self) -> switchboard_actor::behavior_type {
        return {
          [this, self](const call_peer& msg) -> caf::result<peer_answer> {
            if (silent) {
              unanswered.push_back(self->make_response_promise<peer_answer>());
              return unanswered.back();
            }
            if (image.empty())
              return to_caf(ec::unreachable);
            if (const auto* open = std::get_if<wire::open_state>(&msg.what)) {
              opened.push_back(*open);
              return peer_answer{
                msg.to.id,
                wire::state_header{image_epoch, sha256(image.view()), {}, image.size, 1U << 16U},
                {}};
            }
            return peer_answer{msg.to.id, wire::state_chunk{0}, image};
          },
          [](const notify_peer&) {},
          [](const connect_address&) -> caf::result<peer_connected> {
            return to_caf(ec::unreachable);
          },
          [](get_connected_peers) { return connected_peers{}; },
        };
      });
    keep(handle);
    return handle;
  }
  metrics_exporter_actor spawn_exporter() {
    auto handle =
      sys.spawn([this](metrics_exporter_actor::pointer) -> metrics_exporter_actor::behavior_type {
        return {
          [](const training_status&) {},   [this](const helper_status& msg) { told = msg; },
          [](const round_ended&) {},       [](const state_download_ended&) {},
          [](const swarm_progress&) {},    [](const peer_connected&) {},
          [](const peer_disconnected&) {},
        };
      });
    keep(handle);
    return handle;
  }

  // -- events -------------------------------------------------------------------------------------

  static swarm_progress::peer client(std::uint64_t n, const std::string& past, std::uint64_t epoch,
                                     std::uint32_t group_size, std::uint64_t samples = 0) {
    swarm_progress::peer p;
    p.who = test_peer(n);
    p.who.addresses.clear();
    p.who.client_mode = true;
    p.epoch = epoch_id{epoch};
    p.samples = samples;
    p.claim.past = {sha256(past), {}, {}, 10};
    p.claim.group_size = group_size;
    p.claim.ready = true;
    p.claim.target_batch_size = 100;
    return p;
  }
  void connect(std::uint64_t n) { tell(helper, peer_connected{test_peer(n)}); }
  void see(std::vector<swarm_progress::peer> peers) {
    swarm_progress view;
    view.peers = std::move(peers);
    tell(helper, view);
  }
  group_view group_of(std::uint64_t epoch, std::initializer_list<std::uint64_t> members) {
    group_view made{true, epoch_id{epoch}, {}, {ctx.record.id}};
    for (auto n : members)
      made.members.push_back(test_peer(n).id);
    return made;
  }
  /// In a group with clients 2 and 3 at epoch 4.
  void help_two() {
    group = group_of(4, {2});
    connect(2);
    see({client(2, "a", 4, 1)});
    ASSERT_EQ(entered.size(), 1U);
    connect(3);
    tell(helper, group_of(4, {2, 3}));
    see({client(2, "a", 4, 3), client(3, "a", 4, 3)});
  }
  void end_round(bool keeps_majority = true) {
    group_round round;
    round.report.outcome = round_outcome::complete;
    round.report.weight_sum = 100;
    round.report.contributors = {test_peer(2).id, test_peer(3).id};
    round.keeps_majority = keeps_majority;
    round.branch = keeps_majority ? sha256("a") : sha256("a fork");
    round.group = group_of(asked.back().epoch.value() + 1, {2, 3});
    end_round(round);
  }
  /// A promise must be delivered by the actor that made it.
  void end_round(const group_round& round) {
    ended = round;
    tell(averager, inbound_event{});
  }
  void hold_state(const std::string& past, std::uint64_t epoch) {
    std::vector<std::byte> learner(100, std::byte{7});
    training_state state;
    state.epoch = image_epoch = epoch_id{epoch};
    state.past = {sha256(past), {}, {}, 10};
    state.learner = learner;
    image = encode_state(state);
  }

  node_context ctx = test_context(1, wall);
  group_helper_actor helper;
  std::vector<enter_group> entered;
  failure refuse_entry;
  group_view group;
  int quits = 0;
  std::vector<average_in_group> asked;
  std::vector<caf::typed_response_promise<group_round>> rounds;
  group_round ended; // the answer to the last request
  group_averager_actor averager;
  std::vector<report_progress> reports;
  helper_status told;
  payload image;
  bool silent = false; // no peer answers
  std::vector<caf::typed_response_promise<peer_answer>> unanswered;
  epoch_id image_epoch;
  std::vector<wire::open_state> opened;
};

TEST_F(GroupHelper, SaysThatItIsThereAndFoundsNothing) {
  pass(1s);
  ASSERT_FALSE(reports.empty());
  EXPECT_TRUE(reports.back().claim.auxiliary);
  EXPECT_EQ(reports.back().claim.group_size, 0U);
  EXPECT_FALSE(reports.back().claim.ready);
  auto said = reports.size();
  pass(1s);
  EXPECT_EQ(reports.size(), said) << "nothing changed";
  pass(30s);
  EXPECT_GT(reports.size(), said) << "reports expire";
  EXPECT_TRUE(entered.empty());
}

TEST_F(GroupHelper, GoesToAClientThatIsAloneOnceItIsConnected) {
  see({client(2, "a", 4, 1)});
  EXPECT_TRUE(entered.empty()) << "it cannot be dialled";
  group = group_of(4, {2});
  connect(2);
  ASSERT_EQ(entered.size(), 1U);
  EXPECT_EQ(entered.front().through.front().id, test_peer(2).id);
  EXPECT_EQ(reports.back().claim.group_size, 2U);
  EXPECT_EQ(reports.back().claim.past.branch, sha256("a"));
  EXPECT_EQ(reports.back().epoch, epoch_id{4});
  EXPECT_EQ(told.clients, 1U);
}

TEST_F(GroupHelper, CallsTheRoundWhenItsClientsHaveEnoughSamples) {
  help_two();
  see({client(2, "a", 4, 3, 60), client(3, "a", 4, 3, 39)});
  EXPECT_TRUE(asked.empty());
  see({client(2, "a", 4, 3, 60), client(3, "a", 4, 3, 40)});
  ASSERT_EQ(asked.size(), 1U);
  EXPECT_TRUE(asked.front().call);
  EXPECT_EQ(asked.front().values, nullptr);
  EXPECT_EQ(asked.front().weight, 0);
  EXPECT_EQ(asked.front().epoch, epoch_id{4});
  tell(helper, round_called{epoch_id{4}});
  EXPECT_EQ(asked.size(), 1U) << "it is in the round already";
  end_round();
  EXPECT_EQ(reports.back().epoch, epoch_id{5});
  EXPECT_EQ(reports.back().claim.past.work, 210U);
  EXPECT_EQ(reports.back().claim.past.branch, sha256("a"));
}

TEST_F(GroupHelper, TakesPartWhenAMemberCallsAndPassesTheCallOn) {
  help_two();
  tell(helper, round_called{epoch_id{3}});
  EXPECT_TRUE(asked.empty()) << "the call is for another epoch";
  tell(helper, round_called{epoch_id{4}});
  ASSERT_EQ(asked.size(), 1U);
  EXPECT_TRUE(asked.front().call);
}

TEST_F(GroupHelper, FollowsItsGroupIntoAForkAlsoBeforeTheOthersSaySo) {
  help_two();
  tell(helper, round_called{epoch_id{4}});
  end_round(false); // its name is larger, and the members' last reports name the old branch
  EXPECT_NE(reports.back().claim.past.branch, sha256("a"));
  EXPECT_EQ(reports.back().claim.past.parent, sha256("a"));
}

TEST_F(GroupHelper, AfterARoundThatFailedItIsOutsideAndTriesAgain) {
  help_two();
  tell(helper, round_called{epoch_id{4}});
  group_round failed;
  failed.report.why = {ec::lost_quorum, "test"};
  end_round(failed);
  EXPECT_EQ(reports.back().claim.group_size, 0U);
  see({client(2, "b", 4, 1), client(3, "c", 4, 1)});
  pass(1s);
  EXPECT_EQ(entered.size(), 2U);
}

TEST_F(GroupHelper, LeavesAGroupWithoutClientsButNotAtOnce) {
  help_two();
  for (std::uint64_t n : {2U, 3U})
    tell(helper, peer_disconnected{test_peer(n).id, {ec::peer_lost, ""}});
  see({});
  pass(500ms);
  EXPECT_EQ(quits, 0);
  pass(1s);
  EXPECT_EQ(quits, 1);
  EXPECT_EQ(told.clients, 0U);
  EXPECT_EQ(told.group_size, 0U);
}

TEST_F(GroupHelper, DoesNotAskAgainAtOnceForVectorsThatAreTooLong) {
  refuse_entry = {ec::oversize, "test"};
  connect(2);
  see({client(2, "a", 4, 1)});
  pass(2s);
  EXPECT_EQ(entered.size(), 1U);
}

// -- the state ------------------------------------------------------------------------------------

TEST_F(GroupHelper, PassesOnTheStateOfAClient) {
  help_two();
  EXPECT_TRUE(reports.back().claim.ready);
  hold_state("a", 4);
  auto got = ask<state_snapshot>(helper, get_state_snapshot{sha256("a"), epoch_id{4}});
  ASSERT_TRUE(got.ok()) << to_string(got.error());
  EXPECT_EQ(got->epoch, epoch_id{4});
  EXPECT_EQ(got->past.branch, sha256("a"));
  EXPECT_EQ(got->state->size(), image.size);
  ASSERT_EQ(opened.size(), 1U);
  EXPECT_EQ(opened.front().branch, sha256("a"));
  EXPECT_EQ(opened.front().epoch_min, epoch_id{4});
  ASSERT_TRUE(ask<state_snapshot>(helper, get_state_snapshot{sha256("a"), epoch_id{4}}).ok());
  EXPECT_EQ(opened.size(), 1U) << "downloaded once for all requests of an epoch";
  pass(31s);
  ASSERT_TRUE(ask<state_snapshot>(helper, get_state_snapshot{sha256("a"), epoch_id{4}}).ok());
  EXPECT_EQ(opened.size(), 2U) << "the state is dropped after a while";
}

// Waiting peers ask another donor, and readers of the next group do not wait for it.
TEST_F(GroupHelper, ADownloadEndsWithTheGroupThatItWasFor) {
  help_two();
  silent = true;
  auto waiting = ask_later<state_snapshot>(helper, get_state_snapshot{sha256("a"), epoch_id{4}});
  EXPECT_FALSE(waiting.answered());
  tell(helper, round_called{epoch_id{4}});
  group_round failed;
  failed.report.why = {ec::lost_quorum, "test"};
  end_round(failed);
  ASSERT_TRUE(waiting.answered());
  EXPECT_EQ(waiting.get().error().code, ec::not_ready);

  silent = false;
  group = group_of(4, {2});
  see({client(2, "a", 4, 1)});
  pass(1s);
  ASSERT_EQ(entered.size(), 2U);
  hold_state("a", 4);
  EXPECT_TRUE(ask<state_snapshot>(helper, get_state_snapshot{sha256("a"), epoch_id{4}}).ok());
}

TEST_F(GroupHelper, GivesNoStateThatIsNotOfItsGroup) {
  auto refused = [&](const std::string& past, std::uint64_t epoch) {
    auto got = ask<state_snapshot>(helper, get_state_snapshot{sha256(past), epoch_id{epoch}});
    return got.ok() ? ec::none : got.error().code;
  };
  EXPECT_EQ(refused("a", 4), ec::not_ready);
  help_two();
  EXPECT_EQ(refused("b", 4), ec::wrong_run);
  EXPECT_EQ(refused("a", 1'000'000), ec::epoch_mismatch);
  EXPECT_EQ(refused("a", 4), ec::unreachable) << "no member serves a state";
  hold_state("another", 4); // of another history, although the client claims ours
  EXPECT_EQ(refused("a", 4), ec::wrong_run);
  auto bytes = std::vector<std::byte>(image.view().begin(), image.view().end());
  bytes.back() ^= std::byte{1};
  image = copy_to_payload(bytes);
  EXPECT_EQ(refused("a", 4), ec::hash_mismatch);
}

} // namespace
} // namespace waggle::testing
