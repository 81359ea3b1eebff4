// Elastic bit length: the number of buckets follows the size of the swarm.

#include <set>

#include "tests/actors/matchmaker/matchmaker_fixture.hpp"

namespace waggle {
namespace {

class ElasticBits : public matchmaker_fixture {
protected:
  static matchmaking_config elastic(std::string bits = "") {
    return {.prefix = "p",
            .initial_group_bits = std::move(bits),
            .elastic_bits = true,
            .target_group_size = 4};
  }
  static std::size_t length_of(const peer& p) { return bits_of(p).size(); }
  std::set<std::size_t> lengths(std::size_t first, std::size_t last) {
    std::set<std::size_t> out;
    for (auto i = first; i < last; ++i)
      out.insert(length_of(peers[i]));
    return out;
  }
  /// All peers in [first, last) search for a group. Returns how many found one.
  std::size_t round(std::size_t first, std::size_t last) {
    std::vector<pending<group_formed>> asked;
    for (auto i = first; i < last; ++i)
      asked.push_back(find(peers[i], search(8s)));
    pass(12s);
    return static_cast<std::size_t>(
      std::count_if(asked.begin(), asked.end(), [](const auto& one) { return one.get().ok(); }));
  }
  void add(std::size_t count, const matchmaking_config& config) {
    for (std::size_t i = 0; i < count; ++i)
      peers.push_back(wire_up(peers.size() + 1, config));
  }

  std::vector<peer> peers;
};

// 24 peers, groups of 4: four buckets of about six.
TEST_F(ElasticBits, GrowWithTheSwarmShrinkWithItAndTakeNewcomersAlong) {
  add(24, elastic());
  EXPECT_GE(round(0, 24), 20U) << "one bucket is enough at first";
  for (int i = 0; i < 3; ++i)
    (void)round(0, 24);
  EXPECT_EQ(lengths(0, 24), (std::set<std::size_t>{2}));
  EXPECT_GE(round(0, 24), 20U);

  add(1, elastic());
  (void)round(0, 25);
  EXPECT_EQ(length_of(peers[24]), 2U) << "it read the loads before it searched";

  // Two are left. The announcements of the others count until they expire.
  pass(elastic().load_memory + 1s);
  std::size_t found = 0;
  for (int i = 0; i < 6; ++i)
    found = round(0, 2);
  EXPECT_EQ(lengths(0, 2), (std::set<std::size_t>{0}));
  EXPECT_EQ(found, 2U);
}

// Members of groups of three move to the buckets 00, 01 and 10: nobody comes to 11.
TEST_F(ElasticBits, APeerThatIsAloneInItsBucketTriesAnother) {
  for (const char* bits : {"00", "01", "10"}) {
    auto config = elastic(bits);
    config.target_group_size = 3;
    add(3, config);
  }
  auto config = elastic("11");
  config.target_group_size = 3;
  add(1, config);
  bool found = false;
  for (int i = 0; i < 20 && !found; ++i) {
    std::vector<pending<group_formed>> asked;
    for (const auto& p : peers)
      asked.push_back(find(p, search(8s)));
    pass(12s);
    found = asked.back().get().ok();
  }
  EXPECT_TRUE(found);
}

TEST_F(ElasticBits, StayWhereTheyAreUnlessAskedFor) {
  auto config = elastic("01");
  config.elastic_bits = false;
  add(12, config);
  for (int i = 0; i < 3; ++i)
    (void)round(0, 12);
  EXPECT_EQ(lengths(0, 12), (std::set<std::size_t>{2}));
  for (const auto& p : peers)
    for (const auto& entry : p.around->stored)
      EXPECT_NE(entry.name, "p.load");
}

TEST_F(ElasticBits, ASearchCanBeCancelledWhileItAsks) {
  add(1, elastic());
  peers[0].around->finds = false;
  auto asked = find(peers[0], search(5s));
  EXPECT_TRUE(peers[0].around->stored.empty()) << "it searches already";
  EXPECT_EQ(find(peers[0], search(5s)).get().error().code, ec::overloaded);
  tell(peers[0].maker, cancel_search{});
  ASSERT_TRUE(asked.answered());
  EXPECT_EQ(asked.get().error().code, ec::cancelled);
  auto again = find(peers[0], search(5s));
  EXPECT_FALSE(again.answered()) << "the next search begins";
  pass(10s);
  ASSERT_TRUE(again.answered());
  EXPECT_EQ(again.get().error().code, ec::nobody_declared)
    << "without the DHT it searches in the same bucket";
  EXPECT_FALSE(peers[0].around->stored.empty());
}

TEST_F(ElasticBits, NonsenseInTheTableIsIgnored) {
  add(2, elastic());
  auto liar = identity::from_seed(77);
  for (const char* value : {"4294967296 1", "99 99", "", "x"}) {
    record entry{.kind = record_kind::group_member,
                 .name = "p.load",
                 .value = value,
                 .expiration = wall->now() + 60s,
                 .sequence = 1};
    sign_record("test", *liar, entry);
    (void)table.put(key_of(entry.name), entry, wall->now());
  }
  EXPECT_EQ(round(0, 2), 2U);
  EXPECT_EQ(lengths(0, 2), (std::set<std::size_t>{0}));
}

} // namespace
} // namespace waggle
