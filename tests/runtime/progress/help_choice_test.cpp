#include <gtest/gtest.h>

#include "runtime/crypto/digest.hpp"
#include "runtime/progress/client_group.hpp"
#include "tests/support/ids.hpp"

namespace waggle {
namespace {

constexpr std::uint8_t helper = 9;

enum class help : std::uint8_t { none, enter, stay };
help of(const help_choice& choice) {
  if (!choice.needed)
    return help::none;
  return choice.preferred.what == course::enter ? help::enter : help::stay;
}

swarm_progress::peer trainer(std::uint8_t n, const std::string& past, std::uint64_t work,
                             std::uint32_t group_size) {
  swarm_progress::peer p;
  p.who.id = id_of(n);
  p.who.addresses = {{"10.0.0.1", 7700}};
  p.epoch = epoch_id{4};
  p.claim.past = {sha256(past), {}, {}, work};
  p.claim.group_size = group_size;
  p.claim.ready = true;
  p.claim.target_batch_size = 100;
  return p;
}
swarm_progress::peer client(std::uint8_t n, const std::string& past, std::uint64_t work,
                            std::uint32_t group_size, std::uint64_t samples = 0) {
  auto p = trainer(n, past, work, group_size);
  p.who.client_mode = true;
  p.who.addresses.clear();
  p.samples = samples;
  return p;
}
swarm_progress::peer auxiliary(std::uint8_t n, const std::string& past, std::uint32_t group_size) {
  auto p = trainer(n, past, 0, group_size);
  p.claim.auxiliary = true;
  return p;
}

helper_state outside(const evidence* known = nullptr) {
  return {id_of(helper), {}, {}, {}, {}, known};
}
helper_state in_group(const std::string& past, const std::vector<std::uint8_t>& others,
                      const evidence* known = nullptr) {
  helper_state own{id_of(helper), {sha256(past), {}, {}, 10}, epoch_id{4}, {}, {}, known};
  own.members.insert(own.self);
  for (auto n : others) {
    own.members.insert(id_of(n));
    own.links.insert(id_of(n));
  }
  return own;
}
/// A round was completed with these peers.
evidence with(const std::vector<std::uint8_t>& peers) {
  evidence known;
  std::vector<peer_id> contributors;
  for (auto n : peers)
    contributors.push_back(id_of(n));
  known.on_round(contributors);
  return known;
}
std::vector<peer_id> ids(const std::vector<peer_record>& peers) {
  std::vector<peer_id> out;
  for (const auto& peer : peers)
    out.push_back(peer.id);
  return out;
}
// What it decides when these peers report to it.
using reports = std::vector<swarm_progress::peer>;
helper_state seeing(helper_state own, const reports& seen) {
  own.connected = seen;
  return own;
}
help_choice choose_help(const helper_state& own, const reports& seen) {
  return waggle::choose_help(seeing(own, seen));
}
std::vector<peer_record> holders_of(const helper_state& own, const reports& seen) {
  return waggle::holders_of(seeing(own, seen));
}
/// What counts if nothing was delivered yet.
group_samples samples(const helper_state& own, const std::vector<swarm_progress::peer>& seen) {
  return samples_toward(seeing(own, seen), sample_claims{helper_target_max}, {});
}

TEST(HelpChoice, EntersAGroupThatHasOnlyClients) {
  auto choice = choose_help(outside(), {client(1, "a", 10, 1)});
  EXPECT_EQ(of(choice), help::enter);
  EXPECT_EQ(choice.preferred.branch, sha256("a"));
  EXPECT_EQ(choice.preferred.work, 10U);
  ASSERT_EQ(choice.preferred.through.size(), 1U);
  EXPECT_EQ(choice.preferred.through.front().id, id_of(1));
}

TEST(HelpChoice, StaysOutWhereItIsNotNeeded) {
  EXPECT_EQ(of(choose_help(outside(), {})), help::none);
  EXPECT_EQ(of(choose_help(outside(), {client(1, "a", 10, 0)})), help::none) << "in no group";
  EXPECT_EQ(of(choose_help(outside(), {trainer(1, "a", 10, 1)})), help::none);
  EXPECT_EQ(of(choose_help(outside(), {trainer(1, "a", 10, 2), client(2, "a", 10, 2)})),
            help::none);
  EXPECT_EQ(of(choose_help(outside(), {auxiliary(1, "a", 2), client(2, "a", 10, 2)})), help::none)
    << "another auxiliary is there";
}

TEST(HelpChoice, DoesNotStrengthenAHistoryThatGivesWay) {
  // The client will join the two trainers; with us in its group it would be two against two.
  auto choice = choose_help(
    outside(), {client(1, "old", 99, 1), trainer(2, "live", 10, 2), trainer(3, "live", 10, 2)});
  EXPECT_EQ(of(choice), help::none);
}

TEST(HelpChoice, OfClientsThatTrainAloneItTakesTheOneWithMostWork) {
  auto choice = choose_help(outside(), {client(1, "a", 10, 1), client(2, "b", 11, 1)});
  EXPECT_EQ(of(choice), help::enter);
  EXPECT_EQ(choice.preferred.branch, sha256("b"));
}

TEST(HelpChoice, StaysWithItsClients) {
  EXPECT_EQ(of(choose_help(in_group("a", {1}), {client(1, "a", 10, 2)})), help::stay);
  EXPECT_EQ(of(choose_help(in_group("a", {1}), {client(1, "a", 10, 2), client(2, "b", 99, 1)})),
            help::stay)
    << "the other client will join us";
  EXPECT_EQ(of(choose_help(in_group("a", {1, 2}), {client(1, "a", 10, 3), trainer(2, "a", 10, 3)})),
            help::stay);
  EXPECT_EQ(of(choose_help(in_group("a", {1}), {})), help::stay)
    << "it is connected and has not reported yet";
}

TEST(HelpChoice, LeavesWhenThereIsNoClientAnyMore) {
  EXPECT_EQ(of(choose_help(in_group("a", {2}), {trainer(2, "a", 10, 2)})), help::none);
  auto lost = in_group("a", {1});
  lost.links.clear();
  EXPECT_EQ(of(choose_help(lost, {})), help::none);
}

TEST(HelpChoice, StaysWithMembersThatHaveNotReportedTheForkYet) {
  auto own = in_group("fork", {1, 2, 3});
  own.past.parent = sha256("a");
  own.past.forked_at = epoch_id{4};
  std::vector<swarm_progress::peer> seen{client(1, "a", 10, 8), client(2, "a", 10, 8),
                                         client(3, "a", 10, 8)};
  EXPECT_EQ(of(choose_help(own, seen)), help::stay);
  for (auto& peer : seen)
    peer.epoch = epoch_id{5}; // they continued the old history
  EXPECT_EQ(of(choose_help(own, seen)), help::enter);
}

TEST(HelpChoice, LeavesForAHistoryThatOutweighsItsOwn) {
  std::vector<swarm_progress::peer> seen{client(1, "a", 10, 2), trainer(2, "b", 10, 3),
                                         trainer(3, "b", 10, 3), trainer(4, "b", 10, 3)};
  EXPECT_EQ(of(choose_help(in_group("a", {1}), seen)), help::none);
}

TEST(HelpChoice, MadeUpIdentitiesDoNotTakeTheNodeAway) {
  auto known = with({1, 2});
  std::vector<swarm_progress::peer> seen{client(1, "a", 10, 3), client(2, "a", 10, 3)};
  for (std::uint8_t n = 10; n < 14; ++n)
    seen.push_back(trainer(n, "made up", 1'000'000, 64));
  auto choice = choose_help(in_group("a", {1, 2}, &known), seen);
  EXPECT_EQ(of(choice), help::stay);
  ASSERT_TRUE(choice.preferred.doubted);
  EXPECT_EQ(choice.preferred.doubted->branch, sha256("made up"));
  EXPECT_EQ(choice.preferred.doubted->supporters, 4U);
  EXPECT_EQ(of(choose_help(in_group("a", {1, 2}), seen)), help::none)
    << "without evidence the majority decides";
}

TEST(HelpChoice, ComesBackToTheClientsThatItKnowsWhateverOthersClaim) {
  auto known = with({1, 2});
  // The clients' group has fallen apart: each of them trains alone.
  std::vector<swarm_progress::peer> seen{client(1, "a", 12, 1), client(2, "b", 10, 1),
                                         trainer(10, "a", 10, 3), auxiliary(11, "a", 3)};
  for (std::uint8_t n = 12; n < 16; ++n)
    seen.push_back(trainer(n, "made up", 1'000'000, 64));
  auto choice = choose_help(outside(&known), seen);
  EXPECT_EQ(of(choice), help::enter);
  EXPECT_EQ(choice.preferred.branch, sha256("a"));
  ASSERT_FALSE(choice.preferred.through.empty());
  EXPECT_EQ(choice.preferred.through.front().id, id_of(1));
}

TEST(HelpChoice, StaysOutOfAGroupThatKnownClientsSayIsLarger) {
  auto known = with({1, 2});
  std::vector<swarm_progress::peer> seen{client(1, "a", 10, 3), client(2, "a", 10, 3),
                                         trainer(5, "a", 10, 3)};
  EXPECT_EQ(of(choose_help(outside(&known), seen)), help::none);
  seen[0].claim.group_size = 2; // one of two: a lie, or not yet corrected
  EXPECT_EQ(of(choose_help(outside(&known), seen)), help::enter);
  known = with({1, 2, 5});
  seen[1].claim.group_size = 2;
  EXPECT_EQ(of(choose_help(outside(&known), seen)), help::none) << "we know that it trains";
}

TEST(HelpChoice, CountsWhatItsMembersHaveTowardTheEpoch) {
  auto own = in_group("a", {1, 2, 3});
  auto behind = client(3, "a", 10, 4, 50);
  behind.epoch = epoch_id{3};
  std::vector<swarm_progress::peer> seen{client(1, "a", 10, 4, 60), client(2, "a", 10, 4, 39),
                                         behind, client(4, "a", 10, 1, 99),
                                         client(5, "b", 10, 1, 99)};
  EXPECT_EQ(samples(own, seen).samples, 99U);
  EXPECT_FALSE(samples(own, seen).full());
  seen[1].samples = 40;
  EXPECT_TRUE(samples(own, seen).full());
}

TEST(HelpChoice, ClaimsBeyondAllReasonDoNotWrapAround) {
  auto own = in_group("a", {1, 2});
  auto most = ~std::uint64_t{0};
  std::vector<swarm_progress::peer> seen{client(1, "a", 10, 3, most), client(2, "a", 10, 3, most)};
  seen[0].claim.target_batch_size = most;
  EXPECT_EQ(samples(own, seen).target, 100U);
  EXPECT_TRUE(samples(own, seen).full());
  seen[1].claim.target_batch_size = 0;
  EXPECT_FALSE(samples(own, seen).full()) << "no member reports a possible target";
}

TEST(HelpChoice, TheTargetIsTheOneThatMostMembersReport) {
  auto own = in_group("a", {1, 2, 3});
  std::vector<swarm_progress::peer> seen{client(1, "a", 10, 4, 50), client(2, "a", 10, 4),
                                         client(3, "a", 10, 4), client(4, "a", 10, 4)};
  seen[0].claim.target_batch_size = 1;
  seen[3].claim.target_batch_size = 1; // is no member
  EXPECT_EQ(samples(own, seen).target, 100U);
  EXPECT_FALSE(samples(own, seen).full());
  seen[1].claim.target_batch_size = 0;
  EXPECT_EQ(samples(own, seen).target, 1U) << "of two that are reported once, the smaller one";
  auto known = with({2, 3});
  own.known = &known;
  EXPECT_EQ(samples(own, seen).target, 100U) << "members that are known decide";
}

TEST(HelpChoice, SamplesThatAreNotDeliveredDoNotCountForAWhile) {
  auto own = in_group("a", {1, 2});
  std::vector<swarm_progress::peer> seen{client(1, "a", 10, 3, 40),
                                         client(2, "a", 10, 3, 1'000'000)};
  sample_claims claims{helper_target_max};
  steady_time begin{};
  EXPECT_TRUE(samples_toward(seeing(own, seen), claims, begin).full());
  observe_samples(seeing(own, seen), claims);
  claims.begin_epoch(begin);
  auto found = claims.end_round({id_of(1), id_of(2)}, 40, 0, begin);
  EXPECT_EQ(found.missing, 100U) << "a claim counts up to the target";
  EXPECT_EQ(found.suspects, std::vector<peer_id>{id_of(2)});
  EXPECT_EQ(samples_toward(seeing(own, seen), claims, begin).samples, 40U);
  EXPECT_TRUE(samples_toward(seeing(own, seen), claims, begin + std::chrono::seconds{3}).full());
}

TEST(HelpChoice, OnlyTheClaimsOfMembersAreDue) {
  auto own = in_group("a", {1});
  auto behind = client(1, "a", 10, 2, 40);
  behind.epoch = epoch_id{3};
  sample_claims claims{helper_target_max};
  observe_samples(seeing(own, {behind, client(3, "a", 10, 2, 100), auxiliary(4, "a", 2)}), claims);
  claims.begin_epoch({});
  EXPECT_EQ(claims.end_round({id_of(1), id_of(3), id_of(4)}, 0, 0, {}).missing, 0U);
}

// Averaged parameters have weight 1 for each peer that trains.
TEST(HelpChoice, AWeightAboveTheNumberOfContributorsIsOfSamples) {
  EXPECT_TRUE(weighs_samples(4, 3));
  EXPECT_FALSE(weighs_samples(3, 3));
  EXPECT_FALSE(weighs_samples(0, 3));
}

TEST(HelpChoice, TakesTheStateFromMembersOfItsHistory) {
  auto own = in_group("a", {1, 2});
  auto learning = client(2, "a", 10, 3);
  learning.claim.ready = false;
  auto holders =
    holders_of(own, {client(1, "a", 10, 3), learning, client(3, "b", 10, 1), auxiliary(4, "a", 3)});
  ASSERT_EQ(holders.size(), 1U);
  EXPECT_EQ(holders.front().id, id_of(1));
}

TEST(HelpChoice, AMadeUpIdentityGivesNoState) {
  auto own = in_group("a", {2, 3});
  std::vector<swarm_progress::peer> seen{trainer(1, "a", 1'000'000, 3), client(2, "a", 10, 3),
                                         client(3, "a", 10, 3)};
  EXPECT_EQ(ids(holders_of(own, seen)), (std::vector<peer_id>{id_of(2), id_of(3)}));
  auto known = with({3});
  own.known = &known;
  EXPECT_EQ(ids(holders_of(own, seen)), std::vector<peer_id>{id_of(3)}) << "it is known";
  seen[1].claim.ready = seen[2].claim.ready = false;
  EXPECT_TRUE(holders_of(own, seen).empty()) << "newcomers ask again";
}

TEST(HelpChoice, WithoutAMemberThatHasTheStateItAsksPeersThatItKnows) {
  auto known = with({1});
  auto own = in_group("a", {2}, &known);
  auto newcomer = client(2, "a", 10, 2);
  newcomer.claim.ready = false;
  EXPECT_EQ(ids(holders_of(own, {client(1, "a", 10, 1), newcomer, client(3, "a", 10, 1)})),
            std::vector<peer_id>{id_of(1)});
}

} // namespace
} // namespace waggle
