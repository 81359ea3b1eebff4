#include "runtime/state/state_download.hpp"

#include <algorithm>
#include <vector>

#include <gtest/gtest.h>

#include "runtime/core/random.hpp"
#include "runtime/crypto/digest.hpp"

namespace waggle {
namespace {

using bytes = std::vector<std::byte>;

bytes content_of(std::size_t size, std::uint64_t seed) {
  bytes out(size);
  random_source{seed}.fill(out);
  return out;
}

struct StateDownload : ::testing::Test {
  static constexpr std::uint32_t chunk_bytes = 4096;

  bytes whole = content_of(10 * chunk_bytes + 17, 1);
  state_download::options options{.window = 4, .window_max = 4};
  state_download download{options, [] { return make_memory_store(); }};

  static state_offer offer_of(const bytes& content) {
    return {epoch_id{5}, sha256(byte_span{content}), sha256("parameters"), content.size(),
            chunk_bytes};
  }
  static byte_span chunk_of(const bytes& content, std::uint32_t index) {
    auto begin = std::size_t{index} * chunk_bytes;
    return byte_span{content}.subspan(begin,
                                      std::min<std::size_t>(chunk_bytes, content.size() - begin));
  }
  /// Answers at most `n` chunk requests in order.
  void serve(const bytes& content, std::size_t n = 1000) {
    while (n > 0 && !download.complete()) {
      for (auto index : download.next()) {
        if (n == 0)
          return;
        --n;
        ASSERT_TRUE(download.chunk(index, chunk_of(content, index)));
      }
    }
  }
};

TEST_F(StateDownload, AnOfferBeyondTheLimitsIsRefused) {
  auto offer = offer_of(whole);
  options.bytes_max = offer.bytes;
  options.chunks_max = 11;
  state_download limited{options, [] { return make_memory_store(); }};
  EXPECT_TRUE(limited.accept(offer));
  auto changed = [&](auto how) {
    auto other = offer;
    how(other);
    auto said = limited.accept(other);
    return said ? ec::none : said.error().code;
  };
  EXPECT_EQ(changed([](state_offer& o) { ++o.bytes; }), ec::oversize);
  EXPECT_EQ(changed([](state_offer& o) { o.chunk_bytes = 2U << 20U; }), ec::protocol_violation);
  options.chunks_max = 10;
  state_download few{options, [] { return make_memory_store(); }};
  EXPECT_EQ(few.accept(offer).error().code, ec::oversize);
}

/// A store on a disk that is nearly full.
class small_store final : public byte_store {
public:
  explicit small_store(std::uint64_t room) : room_(room) {}
  [[nodiscard]] std::uint64_t size() const override { return inner_->size(); }
  status read(std::uint64_t at, std::span<std::byte> out) const override {
    return inner_->read(at, out);
  }
  status write(std::uint64_t at, byte_span bytes) override { return inner_->write(at, bytes); }
  [[nodiscard]] std::uint64_t room() const override { return room_; }

private:
  std::shared_ptr<byte_store> inner_ = make_memory_store();
  std::uint64_t room_;
};

TEST_F(StateDownload, HalfOfTheRoomStaysFree) {
  auto offer = offer_of(whole);
  auto with_room = [&](std::uint64_t room) {
    state_download one{options, [room]() -> result<std::shared_ptr<byte_store>> {
                         return std::shared_ptr<byte_store>{std::make_shared<small_store>(room)};
                       }};
    return one.accept(offer);
  };
  EXPECT_TRUE(with_room(2 * offer.bytes));
  auto refused = with_room(2 * offer.bytes - 1);
  EXPECT_EQ(refused.error().code, ec::io_error);
  EXPECT_NE(refused.error().detail.find("make room"), std::string::npos);
}

TEST_F(StateDownload, WhatAModelMayHaveFollowsFromItsVectors) {
  EXPECT_GT(state_bytes_max(4'864), 19'456U) << "its parameters alone";
  EXPECT_LT(state_bytes_max(4'864), 2_MiB) << "a model of 19 KB fills no disk";
  EXPECT_GT(state_bytes_max(1U << 30U), 20_GiB) << "parameters, three statistics, a gradient";
  EXPECT_GT(state_bytes_max(~std::uint64_t{0}), 16_GiB) << "no overflow";
}

TEST_F(StateDownload, WhatTheHashDoesNotCoverIsThatOfTheLastDonor) {
  auto lie = offer_of(whole);
  lie.epoch = epoch_id{99};
  lie.parameters = sha256("others");
  ASSERT_TRUE(download.accept(lie));
  serve(whole, 3);
  download.interrupted();
  ASSERT_TRUE(download.accept(offer_of(whole)));
  EXPECT_GT(download.progress(), 0) << "the chunks count";
  EXPECT_EQ(download.offer(), offer_of(whole));
}

TEST_F(StateDownload, RequestsAsMuchAsTheLinkCarriesInAShortTime) {
  download = state_download{{.window = 8, .window_max = 10}, [] { return make_memory_store(); }};
  auto large = content_of(60 * chunk_bytes, 2);
  ASSERT_TRUE(download.accept(offer_of(large)));
  std::uint32_t arrived = 0;
  auto arrive = [&](std::size_t n, steady_time::duration took) {
    (void)download.next();
    for (; n > 0; --n, ++arrived)
      ASSERT_TRUE(download.chunk(arrived, chunk_of(large, arrived), took));
  };
  arrive(1, 5s);
  EXPECT_EQ(download.window(), 4u);
  arrive(7, 5s);
  EXPECT_EQ(download.window(), 4u) << "these were requested before";
  EXPECT_EQ(download.next().size(), 4u);
  arrive(1, 5s);
  EXPECT_EQ(download.window(), 2u);
  arrive(3, 5s);
  arrive(2, 5s);
  EXPECT_EQ(download.window(), 2u) << "it is never less";
  arrive(2, 1s);
  EXPECT_EQ(download.window(), 2u) << "neither slow nor fast";
  for (int i = 0; i < 20; ++i)
    arrive(1, 100ms);
  EXPECT_EQ(download.window(), 10u) << "it is never more";
}

TEST_F(StateDownload, GivesTheWholeWhenEveryChunkCame) {
  ASSERT_TRUE(download.accept(offer_of(whole)));
  EXPECT_FALSE(download.complete());
  serve(whole);
  ASSERT_TRUE(download.complete());
  EXPECT_DOUBLE_EQ(download.progress(), 1);
  EXPECT_TRUE(std::ranges::equal(read_all(**download.finish())->view(), whole));
}

TEST_F(StateDownload, AsksForAWindowOfChunksAndNoneTwice) {
  ASSERT_TRUE(download.accept(offer_of(whole)));
  EXPECT_EQ(download.next(), (std::vector<std::uint32_t>{0, 1, 2, 3}));
  EXPECT_TRUE(download.next().empty());
  ASSERT_TRUE(download.chunk(2, chunk_of(whole, 2)));
  EXPECT_EQ(download.next(), (std::vector<std::uint32_t>{4}));
}

TEST_F(StateDownload, AChunkThatTheDonorPostponesIsAskedForAgain) {
  ASSERT_TRUE(download.accept(offer_of(whole)));
  EXPECT_EQ(download.next(), (std::vector<std::uint32_t>{0, 1, 2, 3}));
  EXPECT_TRUE(download.postponed(3));
  EXPECT_EQ(download.window(), 3U);
  EXPECT_TRUE(download.next().empty()) << "until one that is on its way arrives";
  ASSERT_TRUE(download.chunk(0, chunk_of(whole, 0), 1s));
  EXPECT_EQ(download.next(), (std::vector<std::uint32_t>{3}));
  EXPECT_TRUE(download.postponed(1));
  EXPECT_TRUE(download.postponed(2));
  EXPECT_FALSE(download.postponed(3)) << "nothing is on its way any more";
  EXPECT_EQ(download.next(), (std::vector<std::uint32_t>{1, 2})) << "the smallest window";
}

// For the donor, a download is over when its last chunk was asked for.
TEST_F(StateDownload, AsksForTheLastChunkWhenItHasAllOthers) {
  auto three = content_of(3 * chunk_bytes, 5);
  ASSERT_TRUE(download.accept(offer_of(three)));
  EXPECT_EQ(download.next(), (std::vector<std::uint32_t>{0, 1}));
  ASSERT_TRUE(download.chunk(1, chunk_of(three, 1)));
  EXPECT_TRUE(download.next().empty());
  ASSERT_TRUE(download.chunk(0, chunk_of(three, 0)));
  EXPECT_EQ(download.next(), (std::vector<std::uint32_t>{2}));
}

TEST_F(StateDownload, TakesChunksInAnyOrder) {
  std::uint64_t seed = 3;
  SCOPED_TRACE(seed);
  random_source random{seed};
  ASSERT_TRUE(download.accept(offer_of(whole)));
  std::vector<std::uint32_t> asked;
  while (!download.complete()) {
    for (auto index : download.next())
      asked.push_back(index);
    std::swap(asked[random.below(asked.size())], asked.back());
    ASSERT_TRUE(download.chunk(asked.back(), chunk_of(whole, asked.back())));
    asked.pop_back();
  }
  EXPECT_TRUE(std::ranges::equal(read_all(**download.finish())->view(), whole));
}

TEST_F(StateDownload, RefusesOversizeBeforeAnythingIsAllocated) {
  auto offer = offer_of(whole);
  offer.bytes = options.bytes_max + 1;
  EXPECT_EQ(download.accept(offer).error().code, ec::oversize);
  EXPECT_FALSE(download.offer());
  // An offer at the limit also allocates nothing before its chunks arrive.
  offer.bytes = options.bytes_max;
  offer.chunk_bytes = 1U << 20U;
  EXPECT_TRUE(download.accept(offer));
}

TEST_F(StateDownload, ReportsWhyTheStateCannotBeStored) {
  bool full = true;
  state_download without{options, [&]() -> result<std::shared_ptr<byte_store>> {
                           if (full)
                             return failure{ec::io_error, "no space left"};
                           return make_memory_store();
                         }};
  EXPECT_EQ(without.accept(offer_of(whole)).error().code, ec::io_error);
  EXPECT_FALSE(without.offer());
  full = false;
  EXPECT_TRUE(without.accept(offer_of(whole)));
}

TEST_F(StateDownload, RefusesEmptyStatesAndOddChunkSizes) {
  auto refuse = [&](std::uint64_t size, std::uint32_t chunk) {
    auto offer = offer_of(whole);
    offer.bytes = size;
    offer.chunk_bytes = chunk;
    auto status = download.accept(offer);
    EXPECT_FALSE(status) << size << " " << chunk;
    return status.error().code;
  };
  EXPECT_EQ(refuse(0, 4096), ec::protocol_violation);
  EXPECT_EQ(refuse(100, 0), ec::protocol_violation);
  EXPECT_EQ(refuse(100, 4095), ec::protocol_violation);
  EXPECT_EQ(refuse(100, options.chunk_bytes_max + 1), ec::protocol_violation);
}

TEST_F(StateDownload, RefusesChunksThatWereNotRequestedOrHaveTheWrongLength) {
  EXPECT_FALSE(download.chunk(0, chunk_of(whole, 0))) << "before any offer";
  ASSERT_TRUE(download.accept(offer_of(whole)));
  ASSERT_EQ(download.next().size(), 4U);
  EXPECT_FALSE(download.chunk(9, chunk_of(whole, 9))) << "not requested";
  EXPECT_FALSE(download.chunk(4'000'000, chunk_of(whole, 0))) << "no such chunk";
  EXPECT_FALSE(download.chunk(0, chunk_of(whole, 0).first(100))) << "short";
  EXPECT_FALSE(download.chunk(0, byte_span{whole}.first(chunk_bytes + 1))) << "long";
  ASSERT_TRUE(download.chunk(0, chunk_of(whole, 0)));
  EXPECT_FALSE(download.chunk(0, chunk_of(whole, 0))) << "twice";
}

TEST_F(StateDownload, TheLastChunkMustHaveItsExactLength) {
  ASSERT_TRUE(download.accept(offer_of(whole)));
  serve(whole, 10);
  download.interrupted();
  ASSERT_EQ(download.next(), (std::vector<std::uint32_t>{10}));
  EXPECT_FALSE(download.chunk(10, chunk_of(whole, 0)));
  EXPECT_TRUE(download.chunk(10, chunk_of(whole, 10)));
  EXPECT_TRUE(download.finish());
}

TEST_F(StateDownload, OneFlippedBitIsFoundAndNothingIsKept) {
  auto broken = whole;
  broken[5 * chunk_bytes + 3] ^= std::byte{1};
  ASSERT_TRUE(download.accept(offer_of(whole)));
  serve(broken);
  ASSERT_TRUE(download.complete());
  EXPECT_EQ(download.finish().error().code, ec::hash_mismatch);
  EXPECT_DOUBLE_EQ(download.progress(), 0);
  // The next donor sends all of it.
  ASSERT_TRUE(download.accept(offer_of(whole)));
  serve(whole);
  EXPECT_TRUE(download.finish());
}

TEST_F(StateDownload, GoesOnAtTheNextDonorOfTheSameContent) {
  ASSERT_TRUE(download.accept(offer_of(whole)));
  serve(whole, 6);
  ASSERT_FALSE(download.next().empty()); // requested, then lost with the donor
  download.interrupted();
  ASSERT_TRUE(download.accept(offer_of(whole)));
  EXPECT_NEAR(download.progress(), 6.0 / 11, 1e-9);
  EXPECT_EQ(download.next(), (std::vector<std::uint32_t>{6, 7, 8, 9}));
  download.interrupted();
  serve(whole);
  EXPECT_TRUE(std::ranges::equal(read_all(**download.finish())->view(), whole));
}

TEST_F(StateDownload, StartsAgainForAnotherContent) {
  ASSERT_TRUE(download.accept(offer_of(whole)));
  serve(whole, 6);
  download.interrupted();
  auto other = content_of(3 * chunk_bytes, 2);
  ASSERT_TRUE(download.accept(offer_of(other)));
  EXPECT_DOUBLE_EQ(download.progress(), 0);
  serve(other);
  EXPECT_TRUE(std::ranges::equal(read_all(**download.finish())->view(), other));
}

} // namespace
} // namespace waggle
