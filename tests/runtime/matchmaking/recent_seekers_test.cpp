#include "runtime/matchmaking/recent_seekers.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace waggle {
namespace {

using testing::ElementsAre, testing::IsEmpty;

peer_id peer_number(unsigned number) {
  peer_id id;
  id.bytes[0] = static_cast<std::byte>(number / 256);
  id.bytes[1] = static_cast<std::byte>(number % 256);
  return id;
}

digest schema_number(unsigned number) {
  digest out;
  out.bytes[0] = static_cast<std::byte>(number);
  return out;
}

const steady_time t0{1000h};
const swarm_time soon{5000h};
const auto ours = schema_number(1);

TEST(RecentSeekers, KnowsThePeersThatWantedExactlyThis) {
  recent_seekers seekers;
  seekers.remember(peer_number(3), ours, "bucket", soon, t0);
  seekers.remember(peer_number(1), ours, "bucket", soon, t0);
  seekers.remember(peer_number(2), schema_number(2), "bucket", soon, t0);
  seekers.remember(peer_number(4), ours, "another", soon, t0);
  EXPECT_THAT(seekers.wanting(ours, "bucket", t0), ElementsAre(peer_number(1), peer_number(3)));
}

TEST(RecentSeekers, ItsLastWishIsWhatAPeerWants) {
  recent_seekers seekers;
  seekers.remember(peer_number(1), ours, "bucket", soon, t0);
  seekers.remember(peer_number(1), ours, "another", soon, t0);
  EXPECT_THAT(seekers.wanting(ours, "bucket", t0), IsEmpty());
  EXPECT_THAT(seekers.wanting(ours, "another", t0), ElementsAre(peer_number(1)));
}

TEST(RecentSeekers, KnowsWhenTheirSearchesExpire) {
  recent_seekers seekers;
  seekers.remember(peer_number(1), ours, "bucket", soon, t0);
  EXPECT_EQ(seekers.expiration_of(peer_number(1), ours, "bucket", t0), soon);
  EXPECT_FALSE(seekers.expiration_of(peer_number(2), ours, "bucket", t0));
  EXPECT_FALSE(seekers.expiration_of(peer_number(1), ours, "another", t0));
  EXPECT_FALSE(seekers.expiration_of(peer_number(1), schema_number(2), "bucket", t0));
  EXPECT_FALSE(
    seekers.expiration_of(peer_number(1), ours, "bucket", t0 + recent_seekers::memory + 1ms));
}

TEST(RecentSeekers, ForgetsPeersThatDoNotAskAgain) {
  recent_seekers seekers;
  seekers.remember(peer_number(1), ours, "bucket", soon, t0);
  seekers.remember(peer_number(2), ours, "bucket", soon, t0);
  seekers.remember(peer_number(2), ours, "bucket", soon, t0 + 1ms);
  auto end = t0 + recent_seekers::memory;
  EXPECT_THAT(seekers.wanting(ours, "bucket", end), ElementsAre(peer_number(1), peer_number(2)));
  EXPECT_THAT(seekers.wanting(ours, "bucket", end + 1ms), ElementsAre(peer_number(2)));
}

TEST(RecentSeekers, AFloodOfPeersIsBoundedAndEvictsNoPeer) {
  recent_seekers seekers;
  for (unsigned i = 0; i < 2 * recent_seekers::peers_max; ++i)
    seekers.remember(peer_number(i), ours, "bucket", soon, t0);
  auto known = seekers.wanting(ours, "bucket", t0);
  EXPECT_EQ(known.size(), recent_seekers::peers_max);
  EXPECT_EQ(known.front(), peer_number(0));
  seekers.remember(peer_number(0), ours, "another", soon,
                   t0); // a known peer may change its request
  EXPECT_THAT(seekers.wanting(ours, "another", t0), ElementsAre(peer_number(0)));
  auto later = t0 + recent_seekers::memory + 1ms;
  seekers.remember(peer_number(9'999), ours, "bucket", soon, later);
  EXPECT_THAT(seekers.wanting(ours, "bucket", later), ElementsAre(peer_number(9'999)));
}

} // namespace
} // namespace waggle
