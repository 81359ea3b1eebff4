#include "runtime/progress/run_group.hpp"

#include <gtest/gtest.h>

#include "runtime/crypto/digest.hpp"
#include "tests/support/ids.hpp"

namespace waggle {
namespace {

const digest ours = sha256("ours");

struct RunGroup : ::testing::Test {
  RunGroup() { run.enter(ours, epoch_id{5}); }

  swarm_progress::peer& add(std::uint8_t n, std::uint64_t epoch, bool ready = true) {
    auto& p = view.peers.emplace_back();
    p.who.id = id_of(n);
    p.epoch = epoch_id{epoch};
    p.claim.past.branch = ours;
    p.claim.group_size = 3;
    p.claim.ready = ready;
    return p;
  }
  std::uint64_t run_epoch() {
    run.observe(view);
    return run.run_epoch().value();
  }

  run_group run{id_of(1), 1};
  swarm_progress view;
};

TEST_F(RunGroup, ItsMembersAreThePeersOfOneHistory) {
  add(1, 5); // ourselves
  add(2, 5);
  add(3, 4, false);
  add(4, 5).claim.past.branch = sha256("theirs");
  add(5, 5).claim.group_size = 0;
  add(6, 5).claim.auxiliary = true;
  run.observe(view);
  EXPECT_EQ(run.members(), (std::vector{id_of(1), id_of(2), id_of(3)}));
  EXPECT_EQ(run.partners(), 1U) << "a peer without a state is no partner yet";
}

TEST_F(RunGroup, AnAuxiliaryIsAMemberButNoPartnerAndItsEpochDoesNotCount) {
  add(2, 5);
  add(3, 9).claim.reduces_only = true;
  add(4, 9).claim.reduces_only = true;
  run.observe(view);
  EXPECT_EQ(run.members().size(), 4U);
  EXPECT_EQ(run.partners(), 1U);
  EXPECT_EQ(run_epoch(), 5U);
}

TEST_F(RunGroup, PeersThatAreConnectedTakePrecedence) {
  add(2, 7);
  add(3, 7);
  add(4, 5);
  EXPECT_EQ(run_epoch(), 7U);
  EXPECT_EQ(run.members().size(), 4U) << "as long as none is connected";
  run.on_connected(id_of(4));
  EXPECT_EQ(run_epoch(), 5U);
  EXPECT_EQ(run.members(), (std::vector{id_of(1), id_of(4)}));
  EXPECT_EQ(run.partners(), 1U);
  EXPECT_EQ(run.epoch_of(ours), epoch_id{5});
  run.on_disconnected(id_of(4));
  EXPECT_EQ(run.members().size(), 4U);
}

TEST_F(RunGroup, AnEpochOfTheRunNeedsTwoPeers) {
  EXPECT_EQ(run_epoch(), 5U) << "alone";
  add(2, 8);
  EXPECT_EQ(run_epoch(), 8U) << "the only other peer";
  add(3, 6);
  EXPECT_EQ(run_epoch(), 6U);
  add(4, 7);
  EXPECT_EQ(run_epoch(), 7U);
  add(5, 1'000'000);
  EXPECT_EQ(run_epoch(), 8U);
}

TEST_F(RunGroup, TheEpochsOfUnknownPeersDoNotCountWhereTwoAreKnown) {
  add(2, 6);
  add(3, 7);
  for (std::uint8_t n = 10; n < 20; ++n)
    add(n, 900);
  EXPECT_EQ(run_epoch(), 900U) << "nothing else to go by";
  run.on_round({id_of(1), id_of(2)});
  EXPECT_EQ(run_epoch(), 900U) << "one peer alone may claim anything";
  run.on_round({id_of(1), id_of(3)});
  EXPECT_EQ(run_epoch(), 6U);
}

TEST_F(RunGroup, ClaimsOfClientsAndOfPeersWithoutAStateDoNotCount) {
  add(2, 9).who.client_mode = true;
  add(3, 9).who.client_mode = true;
  EXPECT_EQ(run_epoch(), 5U);
  add(4, 6);
  EXPECT_EQ(run_epoch(), 6U) << "two clients are ahead";
  view.peers.clear();
  add(4, 9, false);
  add(5, 9, false);
  EXPECT_EQ(run_epoch(), 5U);
  add(8, 6);
  EXPECT_EQ(run_epoch(), 6U) << "two that download a state are ahead";
  view.peers.clear();
  add(6, ~std::uint64_t{0});
  add(7, ~std::uint64_t{0});
  EXPECT_EQ(run_epoch(), 5U) << "an epoch that no run reaches";
}

TEST_F(RunGroup, ItIsLeftBehindBeyondTheTolerance) {
  add(2, 6);
  run.observe(view);
  EXPECT_FALSE(run.left_behind());
  view.peers.back().epoch = epoch_id{7};
  run.observe(view);
  EXPECT_TRUE(run.left_behind());
}

TEST_F(RunGroup, ARoundEndsAtTheNextEpochOrTheRuns) {
  add(2, 6);
  run.observe(view);
  run.end_epoch();
  EXPECT_EQ(run.epoch(), epoch_id{6});
  run.end_epoch();
  EXPECT_EQ(run.epoch(), epoch_id{7}) << "ahead of the other";
  view.peers.back().epoch = epoch_id{11};
  run.observe(view);
  run.end_epoch();
  EXPECT_EQ(run.epoch(), epoch_id{11});
}

TEST_F(RunGroup, IsEnteredAtTheEpochOfItsPeers) {
  EXPECT_FALSE(run.epoch_of(ours).has_value());
  add(2, 9, false);
  run.observe(view);
  EXPECT_EQ(run.epoch_of(ours), epoch_id{9}) << "better than nothing";
  add(3, 7);
  run.observe(view);
  EXPECT_EQ(run.epoch_of(ours), epoch_id{7}) << "of a peer that holds the state";
  EXPECT_FALSE(run.epoch_of(sha256("theirs")).has_value());
}

TEST_F(RunGroup, CallsCountForTheEpochThatTheyAreFor) {
  add(2, 5);
  run.observe(view);
  EXPECT_FALSE(run.called());
  run.on_call(id_of(2), run.call_of(epoch_id{4}));
  EXPECT_FALSE(run.called()) << "of an epoch that is over";
  run.on_call(id_of(2), run.call_of(epoch_id{8}));
  run.set_epoch(epoch_id{8});
  EXPECT_FALSE(run.called()) << "too far ahead";
  run.set_epoch(epoch_id{5});
  run.on_call(id_of(9), run.call_of(epoch_id{5}));
  EXPECT_FALSE(run.called()) << "of a stranger";
  run.on_call(id_of(2), run.call_of(epoch_id{6}));
  EXPECT_FALSE(run.called()) << "of the next epoch";
  run.end_epoch();
  EXPECT_TRUE(run.called());
  run.end_epoch();
  EXPECT_FALSE(run.called());
  run.on_call(id_of(2), run.call_of(epoch_id{7}));
  EXPECT_TRUE(run.called());
}

TEST_F(RunGroup, PeersOfOneHistoryMeetWhateverTheirEpochs) {
  run_group other{id_of(2), 1};
  other.enter(ours, epoch_id{9});
  EXPECT_EQ(run.meeting(), other.meeting());
  EXPECT_NE(run.call_of(epoch_id{5}), run.call_of(epoch_id{6}));
  EXPECT_EQ(run.call_of(epoch_id{5}), other.call_of(epoch_id{5}));
  other.enter(sha256("theirs"), epoch_id{5});
  EXPECT_NE(run.meeting(), other.meeting());
  EXPECT_NE(run.call_of(epoch_id{5}), other.call_of(epoch_id{5}));
}

} // namespace
} // namespace waggle
