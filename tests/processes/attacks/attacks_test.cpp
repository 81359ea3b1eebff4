// A real peer is attacked by a client that speaks the protocol. It stays small, answers honest
// peers and health checks, and reports what it refused.

#include "tests/processes/attacks/attacks.hpp"

#include <filesystem>
#include <thread>

#include "tests/processes/attacks/stranger.hpp"
#include "tests/processes/peer.hpp"

namespace waggle::testing {
namespace {

// Bytes. What strangers may use is 20 MiB of bodies, 8 MiB of queues and as much of records.
constexpr double growth_max = 48e6;
constexpr std::size_t descriptors_max = 1'024;

class Attacks : public ::testing::Test {
protected:
  void SetUp() override {
    at.where = node.await_address();
    at.run = "attacked";
    at.duration = 4s;
    before = memory();
  }
  void TearDown() override {
    EXPECT_TRUE(node.runs()) << node.log();
    EXPECT_EQ(healthy(), 200U);
    EXPECT_LT(memory() - before, growth_max);
    EXPECT_LT(descriptors(), descriptors_max);
    EXPECT_LT(node.log().size(), 1'000'000U);
  }

  double memory() { return metric(at.where, "process_resident_memory_bytes"); }
  std::size_t descriptors() const {
    std::filesystem::directory_iterator all{"/proc/" + std::to_string(node.pid()) + "/fd"};
    return static_cast<std::size_t>(std::distance(begin(all), end(all)));
  }
  unsigned healthy() {
    auto answer = net::http_get(at.where, "/healthz", 5s);
    return answer ? answer->status : 0;
  }
  double refused(const std::string& reason) {
    return metric(at.where, "waggle_network_refused_total", "reason=\"" + reason + "\"");
  }

  /// Plays `attack`; meanwhile an honest peer that was connected before pings, others join, and
  /// health checks go on. Returns the pings.
  attacks::latency play(attacks::outcome (*attack)(const attacks::target&)) {
    attacks::latency seen;
    attacks::stranger friendly{at.where, at.run, ++friends, "127.0.0.3"};
    EXPECT_TRUE(friendly.join()) << friendly.why();
    began = std::chrono::steady_clock::now();
    std::thread honest{[&] { seen = attacks::measure_pings(at, std::move(friendly)); }};
    std::thread probes{[&] {
      for (auto until = std::chrono::steady_clock::now() + at.duration;
           std::chrono::steady_clock::now() < until;)
        unhealthy += healthy() == 200U ? 0 : 1;
    }};
    std::string refused;
    std::thread newcomers{[&] { refused = attacks::refused_newcomer(at, "127.0.0.4"); }};
    done = attack(at);
    honest.join();
    probes.join();
    newcomers.join();
    EXPECT_EQ(unhealthy, 0);
    EXPECT_EQ(refused, "") << "newcomers from another host are let in";
    EXPECT_GT(done.messages, 0U);
    if (seen.lost > 0)
      std::printf("lost %llu of an honest peer's pings: %s\n",
                  static_cast<unsigned long long>(seen.lost), seen.why.c_str());
    return seen;
  }

  scratch_folder folder;
  peer node{folder, "node", {"node", "--run-id", "attacked"}};
  attacks::target at;
  attacks::outcome done;
  double before = 0;
  int unhealthy = 0;
  std::uint64_t friends = 1'000;
  std::chrono::steady_clock::time_point began; // of the last attack
};

TEST_F(Attacks, RoundsThatNobodyBegan) {
  EXPECT_EQ(play(attacks::flood_unknown_rounds).lost, 0U);
  EXPECT_EQ(play(attacks::flood_round_messages).lost, 0U);
  EXPECT_GT(refused("unknown_round"), 0);
}

TEST_F(Attacks, UnsignedRecords) {
  EXPECT_EQ(play(attacks::flood_open_records).lost, 0U);
  EXPECT_EQ(metric(at.where, "waggle_dht_records{"), 0);
  EXPECT_GT(metric(at.where, "waggle_dht_records_rejected_total", "reason=\"not_owner\""), 0);
}

TEST_F(Attacks, RecordsOfMadeUpPeers) {
  EXPECT_EQ(play(attacks::flood_made_up_records).lost, 0U);
  // A newcomer's record is still taken.
  attacks::stranger newcomer{at.where, at.run, 77, "127.0.0.2"};
  ASSERT_TRUE(newcomer.join());
  EXPECT_TRUE(newcomer.ping());
}

TEST_F(Attacks, RecordsWithoutContent) {
  EXPECT_EQ(play(attacks::flood_small_records).lost, 0U);
}

TEST_F(Attacks, BadSignatures) {
  EXPECT_EQ(play(attacks::flood_forged_records).lost, 0U);
  EXPECT_EQ(play(attacks::flood_forged_progress).lost, 0U);
  EXPECT_GT(refused("bad_signature"), 0);
  EXPECT_GT(done.refused, 0U) << "links are closed after a few";
}

TEST_F(Attacks, ReportsWithoutEnd) {
  at.links = 16;
  EXPECT_EQ(play(attacks::flood_signed_progress).lost, 0U);
  EXPECT_EQ(play(attacks::flood_notes).lost, 0U);
  EXPECT_GT(metric(at.where, "waggle_network_link_holds_total"), 0);
}

TEST_F(Attacks, QuestionsWithLargeAnswers) {
  (void)play(attacks::flood_made_up_records); // so that the answers are large
  EXPECT_EQ(play(attacks::flood_finds).lost, 0U);
}

TEST_F(Attacks, AnswersThatNobodyReads) {
  (void)play(attacks::flood_made_up_records); // so that the answers are large
  at.links = 32;
  EXPECT_EQ(play(attacks::flood_unread_answers).lost, 0U);
}

TEST_F(Attacks, HeadersThatNeverEnd) {
  at.links = 120;
  at.bytes_per_second = 1e9;
  EXPECT_EQ(play(attacks::unfinished_headers).lost, 0U);
}

TEST_F(Attacks, BodiesThatNeverEnd) {
  at.links = 32;
  at.bytes_per_second = 1e9;
  EXPECT_EQ(play(attacks::unfinished_bodies).lost, 0U);
}

TEST_F(Attacks, MadeUpIdentities) {
  at.links = 300;
  (void)play(attacks::hold_links);
  EXPECT_GT(refused("overloaded"), 0);
  // A peer of another host has a place.
  attacks::stranger newcomer{at.where, at.run, 77, "127.0.0.2"};
  ASSERT_TRUE(newcomer.join());
  EXPECT_TRUE(newcomer.ping());
}

TEST_F(Attacks, IdleSocketsAndHalfOpenUpgrades) {
  at.links = 600;
  EXPECT_EQ(play(attacks::hold_sockets).lost, 0U);
  EXPECT_EQ(play(attacks::hold_upgrades).lost, 0U);
  EXPECT_GT(refused("rate_limited"), 0);
}

TEST_F(Attacks, PagesAndHandshakesWithoutEnd) {
  EXPECT_EQ(play(attacks::flood_pages).lost, 0U);
  at.links = 8;
  (void)play(attacks::flood_handshakes);
}

TEST_F(Attacks, AddressesOfOthers) {
  auto failed_dials = [&] {
    return metric(at.where, "waggle_network_dial_errors_total")
           - metric(at.where, "waggle_network_dial_errors_total", "reason=\"overloaded\"");
  };
  auto earlier = failed_dials();
  (void)play(attacks::announce_addresses);
  // At most 64 strangers a second are dialled, at no more than two of the announced addresses.
  std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - began;
  EXPECT_LT(failed_dials() - earlier, 2 * 64 * (seconds.count() + 1));
}

} // namespace
} // namespace waggle::testing
