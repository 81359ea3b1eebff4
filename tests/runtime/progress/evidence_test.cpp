#include "runtime/progress/evidence.hpp"

#include <set>

#include <gtest/gtest.h>

#include "runtime/core/byte_io.hpp"

namespace waggle {
namespace {

peer_id id_of(std::uint32_t n) {
  peer_id id;
  for (std::size_t i = 0; i < 4; ++i)
    id.bytes[i] = static_cast<std::byte>(n >> (8 * i));
  return id;
}

TEST(Evidence, CoversThePeersOfACompletedRound) {
  evidence known;
  EXPECT_FALSE(known.covers(id_of(1)));
  known.on_round({id_of(1), id_of(2)});
  EXPECT_TRUE(known.covers(id_of(1)));
  EXPECT_TRUE(known.covers(id_of(2)));
  EXPECT_FALSE(known.covers(id_of(3)));
}

TEST(Evidence, ForgetsThePeersWhoseLastRoundIsLongestAgo) {
  evidence known;
  known.on_round({id_of(1)});
  known.on_round({id_of(2)});
  known.on_round({id_of(1)});
  for (std::uint32_t n = 3; n <= evidence::peers_max; ++n)
    known.on_round({id_of(n)});
  EXPECT_TRUE(known.covers(id_of(2))) << "there is room for all";
  known.on_round({id_of(evidence::peers_max + 1)});
  EXPECT_FALSE(known.covers(id_of(2)));
  EXPECT_TRUE(known.covers(id_of(1)));
}

TEST(Evidence, CoversThePeersOnTheListWhereThereIsOneAndNobodyElse) {
  std::set<peer_id> list{id_of(1), id_of(2)};
  evidence known{[&](const peer_id& peer) { return list.contains(peer); }};
  known.on_round({id_of(2), id_of(3)});
  EXPECT_TRUE(known.covers(id_of(1)));
  EXPECT_FALSE(known.covers(id_of(3)));
  list.erase(id_of(2));
  EXPECT_FALSE(known.covers(id_of(2))) << "it was put out";
}

} // namespace
} // namespace waggle
