#include "runtime/training/left_progress.hpp"

#include <cmath>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/crypto/digest.hpp"

namespace waggle::testing {
namespace {

using ::testing::HasSubstr;

constexpr std::uint64_t values = 3;
const digest branch = sha256("branch");

struct LeftProgress : ::testing::Test {
  std::shared_ptr<const identity> owner = identity::from_seed(1);
  std::shared_ptr<const signature_verifier> verifier = make_plain_verifier();

  static own_progress with(float_vector residual) {
    return {.position = "after 12 samples",
            .residual = std::make_shared<const float_vector>(std::move(residual))};
  }
  [[nodiscard]] std::string sealed(const own_progress& what) const {
    auto store = make_memory_store();
    auto content = seal_left(what, *owner, "run", branch, *store);
    std::string bytes{as_string_view(read_all(*store)->view())};
    EXPECT_EQ(*content, sha256(bytes));
    return bytes;
  }
  [[nodiscard]] result<own_progress> opened(std::string_view bytes) const {
    return open_left(bytes, owner->id(), "run", branch, values, *verifier);
  }
  [[nodiscard]] failure why_not(std::string_view bytes) const {
    auto what = opened(bytes);
    return what ? failure{} : what.error();
  }
};

TEST_F(LeftProgress, IsOpenedByWhoeverKnowsWhoHasLeftIt) {
  auto bytes = sealed(with({1, -2, 0.5F}));
  EXPECT_LE(bytes.size(), left_bytes_max(values));
  auto what = opened(bytes);
  EXPECT_EQ(*what->residual, (float_vector{1, -2, 0.5F}));
  EXPECT_EQ(what->position, "after 12 samples");
  EXPECT_EQ(text_of(*what),
            "the errors of its codecs (3 values, norm 2.29) and its place in the data");
  own_progress place{.position = "3"};
  EXPECT_EQ(text_of(*opened(sealed(place))), "its place in the data");
}

TEST_F(LeftProgress, OfTheLargestPositionFitsIntoItsLimit) {
  own_progress what{.position = std::string(position_bytes_max, 'x')};
  EXPECT_LE(sealed(what).size(), left_bytes_max(0));
}

TEST_F(LeftProgress, IsRefusedIfAnybodyHasChangedIt) {
  auto bytes = sealed(with({1, -2, 0.5F}));
  for (std::size_t at : {0UL, 40UL, 96UL, 110UL, 150UL, 200UL, bytes.size() - 1}) {
    auto other = bytes;
    other[at] = static_cast<char>(other[at] ^ 1);
    EXPECT_NE(why_not(other).code, ec::none) << at;
  }
  for (std::size_t size : {0UL, 96UL, 167UL, 168UL, bytes.size() - 1})
    EXPECT_NE(why_not(bytes.substr(0, size)).code, ec::none) << size;
  EXPECT_NE(why_not(bytes + "x").code, ec::none);
}

TEST_F(LeftProgress, OfAnotherPeerRunOrHistoryIsRefused) {
  auto bytes = sealed(with({1, -2, 0.5F}));
  auto other = identity::from_seed(2)->id();
  EXPECT_EQ(open_left(bytes, other, "run", branch, values, *verifier).error().code,
            ec::bad_signature);
  auto foreign = open_left(bytes, owner->id(), "another", branch, values, *verifier).error();
  EXPECT_EQ(foreign.code, ec::wrong_run);
  EXPECT_THAT(foreign.detail, HasSubstr("another run or history"));
  EXPECT_EQ(open_left(bytes, owner->id(), "run", sha256("fork"), values, *verifier).error().code,
            ec::wrong_run);
}

TEST_F(LeftProgress, WithAResidualThatNoRoundCanUseIsRefused) {
  EXPECT_THAT(why_not(sealed(with({1, 2}))).detail, HasSubstr("another length"));
  EXPECT_THAT(why_not(sealed(with({1, 2, 3, 4}))).detail, HasSubstr("another length"));
  EXPECT_THAT(why_not(sealed(with({1, NAN, 3}))).detail, HasSubstr("not finite"));
}

TEST_F(LeftProgress, GoesToTheNearestOfWhoCanBeDialledAndToFew) {
  std::vector<peer_record> members;
  for (std::uint8_t n : {0x40, 0x03, 0x02, 0x80, 0x10, 0x01}) {
    peer_record peer;
    peer.id.bytes[0] = std::byte{n};
    peer.client_mode = n == 0x02;
    members.push_back(peer);
  }
  peer_id self;
  self.bytes[0] = std::byte{0x02};
  std::vector<int> found;
  for (const auto& peer : neighbours_of(self, members))
    found.push_back(std::to_integer<int>(peer.id.bytes[0]));
  EXPECT_THAT(found, ::testing::ElementsAre(0x03, 0x01, 0x10, 0x40));
  members.resize(2);
  EXPECT_EQ(neighbours_of(self, members).size(), 2U);
  members[1].client_mode = true;
  EXPECT_EQ(neighbours_of(self, members).back().id, members[1].id) << "better than nobody";
}

// -- what others have left ------------------------------------------------------------------------

struct LeftWithUs : ::testing::Test {
  left_progress all;
  steady_time now{std::chrono::hours{5}};

  static peer_id peer(std::uint64_t n) { return identity::from_seed(n)->id(); }
  static left_progress::entry entry(const std::string& content) {
    return {branch, epoch_id{3}, sha256(content), make_memory_store()};
  }
  void keep(std::uint64_t n, const std::string& content = "content") {
    ASSERT_TRUE(all.expect(peer(n), now));
    all.keep(peer(n), entry(content), now);
  }
  ec take(std::uint64_t n, const digest& of = branch, std::uint64_t by = 99) {
    auto found = all.give(peer(n), of, peer(by), now);
    return found ? ec::none : found.error().code;
  }
};

TEST_F(LeftWithUs, IsGivenOnce) {
  keep(1);
  EXPECT_EQ(take(2), ec::not_found);
  EXPECT_EQ(take(1), ec::none);
  EXPECT_EQ(take(1), ec::not_found) << "its residual may be in a round by now";
}

TEST_F(LeftWithUs, IsForItsOwnerWhoeverElseHasGotIt) {
  keep(1);
  EXPECT_EQ(take(1, branch, 100), ec::none);
  EXPECT_EQ(take(1, branch, 101), ec::not_found);
  all.contributed({peer(100), peer(101)}, epoch_id{9});
  for (int retry = 0; retry < 2; ++retry)
    EXPECT_EQ(take(1, branch, 1), ec::none);
}

TEST_F(LeftWithUs, IsOutdatedOnceItsOwnerContributesAgain) {
  keep(1);
  keep(2);
  ASSERT_TRUE(all.expect(peer(3), now));
  all.contributed({peer(1), peer(3)}, epoch_id{2}); // the last round before it left, here later
  EXPECT_TRUE(all.has(peer(1)));
  all.contributed({peer(1), peer(3)}, epoch_id{3});
  EXPECT_EQ(take(1, branch, 1), ec::not_found);
  EXPECT_FALSE(all.has(peer(1)));
  EXPECT_EQ(take(2, branch, 2), ec::none);
  EXPECT_TRUE(all.has(peer(3))) << "it is on its way";
}

TEST_F(LeftWithUs, OfAnotherHistoryStays) {
  keep(1);
  EXPECT_EQ(take(1, sha256("fork")), ec::wrong_run);
  EXPECT_EQ(take(1), ec::none);
}

TEST_F(LeftWithUs, IsTheNewestOfAPeer) {
  keep(1, "old");
  keep(1, "new");
  EXPECT_EQ(all.give(peer(1), branch, peer(99), now)->content, sha256("new"));
  EXPECT_EQ(take(1), ec::not_found);
}

TEST_F(LeftWithUs, IsOfFewPeersAtOnce) {
  for (std::uint64_t n = 1; n <= left_progress::kept_max; ++n)
    ASSERT_TRUE(all.expect(peer(n), now));
  EXPECT_EQ(all.expect(peer(9), now).error().code, ec::overloaded) << "it is on its way";
  EXPECT_EQ(all.expect(peer(1), now).error().code, ec::overloaded) << "once at a time";
  EXPECT_EQ(take(1), ec::not_found);
  all.drop(peer(1)); // it did not arrive
  keep(9);
  EXPECT_EQ(all.expect(peer(1), now).error().code, ec::overloaded);
  keep(9);
}

TEST_F(LeftWithUs, ExpiresAndMakesRoom) {
  for (std::uint64_t n = 1; n <= left_progress::kept_max; ++n)
    keep(n);
  now += left_progress::kept_for - 1ms;
  EXPECT_EQ(take(1), ec::none);
  now += 1ms;
  EXPECT_EQ(take(2), ec::not_found);
  for (std::uint64_t n = 11; n <= 10 + left_progress::kept_max; ++n)
    keep(n);
}

TEST_F(LeftWithUs, DoesNotExpireOnItsWay) {
  ASSERT_TRUE(all.expect(peer(1), now));
  now += 2 * left_progress::kept_for;
  all.drop_old(now);
  all.keep(peer(1), entry("late"), now);
  EXPECT_EQ(take(1), ec::none);
}

} // namespace
} // namespace waggle::testing
