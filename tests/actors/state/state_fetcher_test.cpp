#include "actors/state/state_fetcher.hpp"

#include <algorithm>
#include <map>

#include "runtime/core/random.hpp"
#include "runtime/crypto/digest.hpp"
#include "tests/actors/state/state_content.hpp"
#include "tests/support/actor_test.hpp"

namespace waggle::testing {

/// A donor as the fetcher sees it through the switchboard.
struct scripted_donor {
  epoch_id epoch{5};
  std::shared_ptr<const std::vector<std::byte>> content;
  std::uint32_t chunk_bytes = 4096;
  ec refuse = ec::none;               // instead of an offer
  std::size_t chunks_max = 1'000'000; // afterwards it is lost, or silent
  bool silent = false;                // it does not answer instead of failing
  bool corrupt = false;               // one bit of the second chunk is wrong
  std::uint64_t claim_bytes = 0;      // instead of the true size
  milliseconds chunk_takes{0};        // one after another
  // Observed.
  int opened = 0;
  std::vector<std::uint32_t> asked;
};
struct donors {
  std::map<peer_id, scripted_donor> all;
};
/// To the fake itself: answer now.
struct answer_now {
  std::shared_ptr<caf::typed_response_promise<peer_answer>> promise;
  peer_answer answer;
};
using fake_board = switchboard_actor::extend<caf::reacts_to<answer_now>>;

} // namespace waggle::testing

CAF_ALLOW_UNSAFE_MESSAGE_TYPE(waggle::testing::answer_now)

namespace waggle::testing {
namespace {

fake_board::behavior_type fake_switchboard(fake_board::pointer self,
                                           std::shared_ptr<donors> world) {
  auto busy_until = std::make_shared<std::map<peer_id, steady_time>>();
  return {
    [self, world, busy_until](const call_peer& msg) -> caf::result<peer_answer> {
      auto found = world->all.find(msg.to.id);
      if (found == world->all.end())
        return to_caf(ec::unreachable, "no such peer");
      auto& donor = found->second;
      // Only for requests that are not answered at once: a promise replaces the answer.
      auto promised = [self] {
        return std::make_shared<caf::typed_response_promise<peer_answer>>(
          self->make_response_promise<peer_answer>());
      };
      if (std::holds_alternative<wire::open_state>(msg.what)) {
        ++donor.opened;
        if (donor.refuse != ec::none)
          return to_caf(donor.refuse);
        if (!donor.content)
          return *promised(); // never answered
        auto size = donor.claim_bytes != 0 ? donor.claim_bytes : donor.content->size();
        return peer_answer{msg.to.id,
                           wire::state_header{donor.epoch, sha256(byte_span{*donor.content}),
                                              sha256("p"), size, donor.chunk_bytes},
                           {}};
      }
      const auto& question = std::get<wire::get_state_chunk>(msg.what);
      if (donor.asked.size() >= donor.chunks_max) {
        if (donor.silent)
          return *promised();
        return to_caf(ec::peer_lost, "reset");
      }
      donor.asked.push_back(question.index);
      auto begin = std::size_t{question.index} * donor.chunk_bytes;
      auto size = std::min<std::size_t>(donor.chunk_bytes, donor.content->size() - begin);
      auto body = copy_to_payload(byte_span{*donor.content}.subspan(begin, size));
      if (donor.corrupt && question.index == 1) {
        std::vector<std::byte> bytes(body.view().begin(), body.view().end());
        bytes[0] ^= std::byte{1};
        body = copy_to_payload(bytes);
      }
      peer_answer answer{msg.to.id, wire::state_chunk{question.index}, body};
      if (donor.chunk_takes.count() == 0)
        return answer;
      auto& busy = (*busy_until)[msg.to.id];
      auto promise = promised();
      auto now = self->clock().now();
      busy = std::max(busy, now) + donor.chunk_takes;
      self->delayed_send(self, busy - now, answer_now{promise, answer});
      return *promise;
    },
    [](const notify_peer&) {},
    [](const connect_address&) -> caf::result<peer_connected> { return to_caf(ec::unreachable); },
    [](const answer_now& msg) { msg.promise->deliver(msg.answer); },
  };
}

struct StateFetcher : actor_test {
  std::shared_ptr<donors> world = std::make_shared<donors>();
  node_context ctx = test_context(1, wall);
  fetch_config config;
  fake_board board = spawn(fake_switchboard, world);
  std::shared_ptr<const std::vector<std::byte>> content = content_of(20 * 4096 + 9, 1);
  state_fetcher_actor fetcher;

  scripted_donor& donor(std::uint64_t seed) {
    auto& made = world->all[test_peer(seed).id];
    if (!made.content)
      made.content = content;
    return made;
  }
  auto fetch(std::vector<std::uint64_t> seeds, std::uint64_t epoch_min = 5,
             milliseconds deadline = 600s) {
    fetcher = spawn<state_fetcher>(ctx, config, switchboard_actor{board});
    fetch_state question;
    for (auto seed : seeds)
      question.donors.push_back(test_peer(seed));
    question.epoch_min = epoch_id{epoch_min};
    question.deadline = deadline;
    return ask_later<fetched_state>(fetcher, question);
  }
  double ended(const std::string& outcome) {
    return exported(*ctx.metrics, "waggle_state_downloads_total{outcome=\"" + outcome + "\"");
  }
};

TEST_F(StateFetcher, FetchesTheWholeStateFromTheFirstDonorAndEnds) {
  donor(2);
  donor(3);
  auto got = fetch({2, 3}).get();
  EXPECT_EQ(got->donor, test_peer(2).id);
  EXPECT_EQ(got->epoch, epoch_id{5});
  EXPECT_EQ(got->parameters, sha256("p"));
  EXPECT_TRUE(std::ranges::equal(read_all(*got->state)->view(), *content));
  EXPECT_EQ(donor(3).opened, 0);
  EXPECT_FALSE(got->resumed);
  EXPECT_EQ(ended("complete"), 0) << "whoever loads it knows whether it was the state of the run";
  EXPECT_EQ(exported(*ctx.metrics, "waggle_state_bytes_total{direction=\"in\""),
            static_cast<double>(content->size()));
  EXPECT_FALSE(alive(fetcher));
}

TEST_F(StateFetcher, GoesOnAtTheNextDonorWhereTheFirstWasLost) {
  donor(2).chunks_max = 12;
  donor(3);
  auto got = fetch({2, 3}).get();
  EXPECT_EQ(got->donor, test_peer(3).id);
  EXPECT_TRUE(std::ranges::equal(read_all(*got->state)->view(), *content));
  EXPECT_LT(donor(3).asked.size(), 21U) << "chunks that were received are not requested again";
  EXPECT_TRUE(got->resumed);
}

TEST_F(StateFetcher, StartsAnewAtADonorOfAnotherState) {
  donor(2).chunks_max = 12;
  donor(3).content = content_of(10 * 4096, 9);
  donor(3).epoch = epoch_id{6};
  auto got = fetch({2, 3}).get();
  EXPECT_EQ(got->epoch, epoch_id{6});
  EXPECT_TRUE(std::ranges::equal(read_all(*got->state)->view(), *donor(3).content));
  EXPECT_FALSE(got->resumed) << "nothing of the first donor was usable";
}

TEST_F(StateFetcher, LeavesADonorThatFallsSilent) {
  donor(2).chunks_max = 12;
  donor(2).silent = true;
  donor(3);
  auto pending = fetch({2, 3});
  pass(9s);
  EXPECT_FALSE(pending.answered());
  pass(3s);
  auto got = pending.get();
  EXPECT_EQ(got->donor, test_peer(3).id);
}

TEST_F(StateFetcher, ASlowDonorThatMovesOnIsNotLeft) {
  // Eight chunks in flight, one every 4 s: the last of a window waits for 32 s, three silence
  // limits.
  donor(2).chunk_takes = 4s;
  donor(3);
  auto pending = fetch({2, 3});
  pass(85s);
  auto got = pending.get();
  EXPECT_EQ(got->donor, test_peer(2).id);
  EXPECT_EQ(donor(3).opened, 0);
}

TEST_F(StateFetcher, LeavesADonorThatIsTooSlowForTheDeadline) {
  config.slow = std::make_shared<std::vector<peer_id>>();
  donor(2).chunk_takes = 9'900ms; // never silent for too long
  donor(3);
  auto pending = fetch({2, 3}, 5, 100s);
  pass(9s);
  EXPECT_EQ(donor(3).opened, 0) << "it gets a fair time";
  pass(12s);
  auto got = pending.get();
  EXPECT_EQ(got->donor, test_peer(3).id);
  EXPECT_TRUE(got->resumed) << "what it delivered is not requested again";
  EXPECT_TRUE(std::ranges::equal(read_all(*got->state)->view(), *content));
  EXPECT_EQ(*config.slow, std::vector{test_peer(2).id});
}

TEST_F(StateFetcher, LeavesASlowDonorForAnotherOfTheSameVote) {
  config.compare = state_comparison::content;
  donor(2).chunk_takes = 9'900ms;
  donor(3);
  donor(4);
  auto pending = fetch({2, 3, 4}, 5, 100s);
  pass(21s);
  auto got = pending.get();
  EXPECT_EQ(got->donor, test_peer(3).id);
  EXPECT_LT(donor(3).asked.size(), 21U);
}

TEST_F(StateFetcher, ASlowDonorIsAskedAgainIfTheOthersAreSlowerStill) {
  donor(2).chunk_takes = 6s; // 21 chunks take 126 s
  donor(3).chunk_takes = 9'900ms;
  auto pending = fetch({2, 3}, 5, 110s);
  pass(45s);
  EXPECT_EQ(donor(2).opened, 2);
  EXPECT_EQ(donor(3).opened, 1);
  pass(66s);
  EXPECT_TRUE(pending.answered());
}

TEST_F(StateFetcher, NamesTheDonorThatWasTooSlowWhenTheDeadlineCame) {
  config.slow = std::make_shared<std::vector<peer_id>>();
  donor(2).chunk_takes = 4s;
  auto pending = fetch({2}, 5, 30s);
  pass(31s);
  ASSERT_TRUE(pending.answered());
  EXPECT_EQ(pending.get().error().code, ec::timeout);
  EXPECT_EQ(*config.slow, std::vector{test_peer(2).id});
}

TEST_F(StateFetcher, LeavesADonorThatNeverOffersAnything) {
  world->all[test_peer(2).id]; // answers nothing
  donor(3);
  auto pending = fetch({2, 3});
  pass(32s);
  EXPECT_TRUE(pending.get());
}

TEST_F(StateFetcher, ACorruptStateIsFoundCountedAndFetchedElsewhere) {
  donor(2).corrupt = true;
  donor(3);
  auto got = fetch({2, 3}).get();
  EXPECT_EQ(got->donor, test_peer(3).id);
  EXPECT_TRUE(std::ranges::equal(read_all(*got->state)->view(), *content));
  EXPECT_EQ(exported(*ctx.metrics, "waggle_network_refused_total{reason=\"hash_mismatch\""), 1);
  EXPECT_EQ(ended("hash_mismatch"), 0) << "the download went well, in the end";
}

TEST_F(StateFetcher, AWrongChunkOfALostDonorIsNotBlamedOnTheNextOne) {
  for (auto compare : {state_comparison::none, state_comparison::content}) {
    config.compare = compare;
    config.suspects = std::make_shared<std::vector<peer_id>>();
    world->all.clear();
    donor(2).corrupt = true;
    donor(2).chunks_max = 3;
    donor(3);
    donor(4);
    auto got = fetch({2, 3, 4}).get();
    EXPECT_EQ(got->donor, test_peer(3).id);
    EXPECT_FALSE(got->resumed) << "it was downloaded from that donor alone";
    EXPECT_TRUE(std::ranges::equal(read_all(*got->state)->view(), *content));
    EXPECT_TRUE(config.suspects->empty());
  }
  EXPECT_EQ(ended("hash_mismatch"), 0);
}

TEST_F(StateFetcher, OnlyADonorOfAllChunksIsBlamedForAWrongHash) {
  config.suspects = std::make_shared<std::vector<peer_id>>();
  donor(2).chunks_max = 1;
  donor(3).corrupt = true;
  EXPECT_EQ(fetch({2, 3}).get().error().code, ec::hash_mismatch);
  EXPECT_EQ(donor(3).opened, 2) << "it was asked for the whole state";
  EXPECT_EQ(*config.suspects, std::vector{test_peer(3).id});
}

TEST_F(StateFetcher, ACorruptStateIsNeverHandedOut) {
  donor(2).corrupt = true;
  EXPECT_EQ(fetch({2}).get().error().code, ec::hash_mismatch);
  EXPECT_EQ(ended("hash_mismatch"), 1);
  EXPECT_EQ(ended("failed"), 0) << "a download is counted once";
  EXPECT_EQ(exported(*ctx.metrics, "waggle_state_download_duration_seconds_count"), 0)
    << "it brought no state";
  EXPECT_FALSE(alive(fetcher));
}

TEST_F(StateFetcher, AStateOlderThanTheRunIsNotTaken) {
  donor(2).epoch = epoch_id{4};
  donor(3);
  auto got = fetch({2, 3}).get();
  EXPECT_EQ(got->donor, test_peer(3).id);
  EXPECT_TRUE(donor(2).asked.empty());
}

TEST_F(StateFetcher, WithoutAnyDonorThereIsNone) {
  EXPECT_EQ(fetch({}).get().error().code, ec::no_donor);
}

TEST_F(StateFetcher, TellsWhyTheLastDonorRefused) {
  donor(2).refuse = ec::overloaded;
  EXPECT_EQ(fetch({9, 2}).get().error().code, ec::overloaded);
  EXPECT_EQ(donor(2).opened, 1);
}

TEST_F(StateFetcher, EndsAtItsDeadlineWhateverHappens) {
  donor(2).chunk_takes = 4s;
  auto pending = fetch({2}, 5, 30s);
  pass(29s);
  EXPECT_FALSE(pending.answered());
  pass(2s);
  EXPECT_EQ(pending.get().error().code, ec::timeout);
  EXPECT_FALSE(alive(fetcher));
  pass(120s); // late chunks are ignored
}

TEST_F(StateFetcher, ASecondQuestionIsRefused) {
  donor(2).chunk_takes = 1s;
  auto pending = fetch({2});
  auto second = ask<fetched_state>(fetcher, fetch_state{{test_peer(2)}, {}, {}, 10s, nullptr});
  EXPECT_EQ(second.error().code, ec::overloaded);
  pass(30s);
  EXPECT_TRUE(pending.get());
}

} // namespace
} // namespace waggle::testing
