#include "runtime/progress/evidence.hpp"

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

void complete_rounds(evidence& known, const std::vector<peer_id>& peers) {
  for (std::uint64_t i = 0; i < evidence::rounds_min; ++i)
    known.on_round(peers);
}

TEST(Evidence, CoversThePeersOfSeveralCompletedRounds) {
  evidence known;
  for (std::uint64_t i = 0; i < evidence::rounds_min; ++i) {
    EXPECT_FALSE(known.covers(id_of(1)));
    known.on_round({id_of(1), id_of(2)});
  }
  EXPECT_TRUE(known.covers(id_of(1)));
  EXPECT_TRUE(known.covers(id_of(2)));
  EXPECT_FALSE(known.covers(id_of(3)));
}

TEST(Evidence, ForgetsThePeersWhoseLastRoundIsLongestAgo) {
  evidence known;
  complete_rounds(known, {id_of(1)});
  complete_rounds(known, {id_of(2)});
  known.on_round({id_of(1)});
  for (std::uint32_t n = 10; known.size() < evidence::peers_max; ++n)
    known.on_round({id_of(n)});
  known.on_round({id_of(5)});
  EXPECT_EQ(known.size(), evidence::peers_max);
  EXPECT_FALSE(known.covers(id_of(2)));
  EXPECT_TRUE(known.covers(id_of(1)));
}

} // namespace
} // namespace waggle
