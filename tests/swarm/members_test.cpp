// A swarm with a key and a list of members, on virtual time: who is removed is out on all peers, of
// two lists of one version all keep the same one, and an old list brings nobody back.

#include <gmock/gmock.h>

#include "runtime/crypto/swarm_key.hpp"
#include "tests/swarm/training_swarm.hpp"

namespace waggle::testing {
namespace {

constexpr std::size_t peers = 8;
constexpr index late = peers; // who comes later

struct listed_swarm : trainers {
  explicit listed_swarm(std::uint64_t seed) : trainers(seed), seed(seed) {
    sim.keep_log_lines();
    key.bytes.fill(std::byte{7});
  }

  [[nodiscard]] peer_id id_of(index who) const {
    return identity::from_seed(seed * 1000 + who + 1)->id();
  }
  /// The eight peers and the late one, but these.
  [[nodiscard]] member_list list_without(const std::set<index>& out, std::uint64_t version) const {
    std::vector<member_list::member> all;
    for (index i = 0; i <= late; ++i)
      if (!out.contains(i))
        all.push_back({id_of(i), swarm_time::max()});
    return *member_list::sign(*authority, version, std::move(all));
  }
  index add(const std::optional<member_list>& list, const std::vector<index>& through) {
    auto config = endless(sim.size() + 1);
    config.run_id = run_id_of(key);
    config.members = std::make_shared<run_members>(authority->key());
    if (list) {
      EXPECT_TRUE(config.members->take(list->bytes()));
    }
    return trainers::add(std::move(config), through);
  }
  /// Eight peers in one group; all have the list of the first.
  void begin() {
    add(list_without({}, 1), {});
    while (sim.size() < peers)
      add(std::nullopt, {0});
    ASSERT_TRUE(sim.run_until([&] { return together(); }, 60s)) << picture(sim);
  }
  /// As `waggle members push` does.
  void push(index to, const member_list& list) {
    EXPECT_TRUE(sim[to].node.ctx.members->take(list.bytes()));
  }
  [[nodiscard]] bool all_keep(const list_rank& rank, const std::vector<index>& who) {
    return std::ranges::all_of(who,
                               [&](index i) { return sim[i].node.ctx.members->rank() == rank; });
  }
  /// Nobody but itself has a link with it.
  bool is_out(index who) {
    return std::ranges::all_of(sim.living(), [&](index i) {
      return i == who
             || (!sim[i].node.ctx.links->find(id_of(who))
                 && !sim[who].node.ctx.links->find(id_of(i)));
    });
  }
  /// The group of the others trains on.
  void expect_others_go_on(const std::vector<index>& others) {
    ASSERT_TRUE(sim.run_until([&] { return together(others); }, 30s)) << picture(sim);
    auto before = status_of(others.front()).epoch.value();
    EXPECT_TRUE(sim.run_until(
      [&] { return together(others) && status_of(others.back()).epoch.value() > before + 10; },
      30s))
      << picture(sim);
    expect_rounds_kept_the_contract(sim);
    for (auto i : sim.living())
      expect_samples_accounted(status_of(i));
  }
  std::vector<index> living_but(index who) {
    auto all = sim.living();
    std::erase(all, who);
    return all;
  }

  std::uint64_t seed;
  swarm_key key;
  std::shared_ptr<const identity> authority = identity::from_seed(99);
};

class ListedSwarms : public ::testing::TestWithParam<std::uint64_t> {};

TEST_P(ListedSwarms, WhoIsRemovedIsOutOnAllAndNoOldListBringsItBack) {
  listed_swarm swarm{GetParam()};
  auto& sim = swarm.sim;
  swarm.begin();
  index removed = 1 + GetParam() % (peers - 1);
  auto old = swarm.list_without({}, 1);
  auto now = swarm.list_without({removed, late}, 2);
  auto others = swarm.living_but(removed);
  swarm.push(GetParam() % 2 == 0 ? 0 : removed, now);
  EXPECT_TRUE(
    sim.run_until([&] { return swarm.is_out(removed) && swarm.all_keep(now.rank(), others); }, 2s));
  EXPECT_GT(swarm.lines_with(removed, "this peer is not on the run's list of members (version 2)"),
            0U);
  swarm.expect_others_go_on(others);

  // Another one comes with the list that it is on, and a member sends that list around.
  ASSERT_EQ(swarm.add(old, {0}), late);
  auto sender = others.back();
  for (auto other : others)
    if (other != sender)
      caf::anon_send(sim[sender].node.parts.switchboard,
                     notify_peer{sim[other].node.ctx.record, wire::members_note{old.bytes()}, {}});
  sim.run_for(20s);
  EXPECT_TRUE(swarm.is_out(removed));
  EXPECT_TRUE(swarm.is_out(late));
  EXPECT_TRUE(swarm.all_keep(now.rank(), others));
  swarm.expect_others_go_on(others);
}

TEST_P(ListedSwarms, OfTwoListsOfOneVersionAllKeepTheOneWithTheSmallerHash) {
  listed_swarm swarm{GetParam()};
  swarm.begin();
  // Two halves that do not reach each other get one each; each removes a peer of the other half.
  std::map<index, member_list> lists;
  for (index out : {2U, 6U})
    lists.emplace(out, swarm.list_without({out}, 2));
  swarm.sim.network().partition({0, 1, 2, 3});
  swarm.push(0, lists.at(6));
  swarm.push(7, lists.at(2));
  swarm.sim.run_for(3s);
  EXPECT_TRUE(swarm.all_keep(lists.at(6).rank(), {0, 1, 2, 3}));
  swarm.sim.network().heal();
  index out = lists.at(2).rank().hash < lists.at(6).rank().hash ? 2 : 6;
  auto others = swarm.living_but(out);
  EXPECT_TRUE(swarm.sim.run_until(
    [&] { return swarm.all_keep(lists.at(out).rank(), others) && swarm.is_out(out); }, 60s));
  swarm.expect_others_go_on(others);
}

TEST_P(ListedSwarms, TwoGroupsOfMembersThatNeverMetBecomeOne) {
  listed_swarm swarm{GetParam()};
  auto& sim = swarm.sim;
  auto list = swarm.list_without({}, 1);
  swarm.add(list, {});
  swarm.add(list, {});
  sim.network().partition({1, 3});
  swarm.add(list, {0, 1});
  swarm.add(list, {1, 0});
  ASSERT_TRUE(sim.run_until([&] { return swarm.together({0, 2}) && swarm.together({1, 3}); }, 60s));
  sim.network().heal();
  swarm.expect_others_go_on(sim.living());
}

TEST(ListedSwarm, AMemberWithAnotherKeyAndAPeerOfAnotherAuthorityStayOutside) {
  listed_swarm swarm{3};
  swarm.begin();
  auto members = swarm.sim.living();
  auto key = std::exchange(swarm.key, swarm_key{});
  ASSERT_EQ(swarm.add(swarm.list_without({}, 1), {0}), late);
  swarm.key = key;
  swarm.authority = identity::from_seed(98);
  auto foreign = swarm.add(std::nullopt, {0});
  swarm.sim.run_for(20s);
  for (auto who : {late, foreign})
    for (auto i : members)
      EXPECT_FALSE(swarm.sim[i].node.ctx.links->find(swarm.id_of(who)));
  swarm.expect_others_go_on(members);
}

INSTANTIATE_TEST_SUITE_P(Seeds, ListedSwarms, ::testing::Values(1, 2, 3, 4));

} // namespace
} // namespace waggle::testing
