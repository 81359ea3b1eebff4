// waggle average with real sockets, killed processes and vectors of 64 MiB: all members that finish
// a round have the same contributors and bytes.

#include <map>

#include <sys/wait.h>

#include "runtime/cli/average_vector.hpp"
#include "runtime/crypto/digest.hpp"
#include "tests/processes/peer.hpp"

namespace waggle::testing {
namespace {

using json = nlohmann::json;

constexpr std::size_t elements = std::size_t{16} << 20U;

/// The digest of the mean over these contributors, which a round sums in this order, in double
/// precision, and rounds once.
std::string digest_of_mean(const json& contributors) {
  static std::map<std::string, std::string> known;
  auto& digest = known[contributors.dump()];
  if (!digest.empty())
    return digest;
  auto pool = vector_pool::make(1);
  std::vector<double> sums(elements);
  for (const auto& id : contributors) {
    auto values = average_vector_of(*peer_id::parse(id.get<std::string>()), elements, *pool);
    std::transform(sums.begin(), sums.end(), values->begin(), sums.begin(), std::plus<double>{});
  }
  std::vector<float> mean(elements);
  std::transform(sums.begin(), sums.end(), mean.begin(), [&](double sum) {
    return static_cast<float>(sum / static_cast<double>(contributors.size()));
  });
  return digest = to_string(sha256(as_string_view(std::as_bytes(std::span{mean}))));
}

class AverageProcesses : public ::testing::Test {
protected:
  void start(std::size_t count, const std::vector<std::string>& more = {}) {
    std::vector<std::string> arguments{"average", "--elements", std::to_string(elements),
                                       "--stall-timeout", "2s"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    for (std::size_t i = 0; i < count; ++i) {
      auto with = arguments;
      if (i > 0) {
        with.emplace_back("--initial-peers");
        with.push_back(to_string(peers[0]->await_address()));
      }
      peers.push_back(std::make_unique<peer>(folder, "peer" + std::to_string(i), with));
    }
  }

  /// Waits until each of `who` has finished `rounds` rounds with `contributors` contributors.
  bool reach(const std::vector<std::size_t>& who, std::size_t contributors, std::size_t rounds) {
    return eventually([&] {
      return std::all_of(who.begin(), who.end(), [&](std::size_t i) {
        auto all = peers[i]->rounds();
        return static_cast<std::size_t>(std::count_if(
                 all.begin(), all.end(),
                 [&](const json& r) { return r["contributors"].size() == contributors; }))
               >= rounds;
      });
    });
  }

  /// All peers that finished a round have the same contributors and weights, and the bytes of the
  /// mean over these.
  void expect_agreement() {
    std::map<std::string, json> rounds;
    for (const auto& p : peers)
      for (const auto& r : p->rounds()) {
        if (r["outcome"] == "failed") {
          EXPECT_FALSE(r["reason"].is_null());
          continue;
        }
        auto [known, first] = rounds.emplace(r["round"].get<std::string>(), r);
        if (first) {
          EXPECT_EQ(r["digest"], digest_of_mean(r["contributors"])) << logs();
          continue;
        }
        EXPECT_EQ(known->second["contributors"], r["contributors"]);
        EXPECT_EQ(known->second["digest"], r["digest"]);
        EXPECT_EQ(known->second["weight_sum"], r["weight_sum"]);
      }
  }

  std::string logs() {
    std::string all;
    for (const auto& p : peers)
      all += "\n--- " + p->log();
    return all;
  }

  scratch_folder folder;
  std::vector<std::unique_ptr<peer>> peers;
};

TEST_F(AverageProcesses, FourPeersAverageAndEndCleanly) {
  start(4, {"--expected-peers", "4", "--rounds", "3"});
  for (auto& p : peers)
    EXPECT_EQ(p->await_exit(60s), 0) << p->log();
  EXPECT_TRUE(reach({0, 1, 2, 3}, 4, 3)) << logs();
  expect_agreement();
}

TEST_F(AverageProcesses, SurvivorsOfAKillInARoundAgree) {
  start(4);
  ASSERT_TRUE(reach({0, 1, 2, 3}, 4, 2)) << logs();
  peers[2]->signal(SIGKILL); // there is no pause between rounds, so this hits one
  ASSERT_TRUE(reach({0, 1, 3}, 3, 2)) << logs();
  expect_agreement();
}

TEST_F(AverageProcesses, SurvivorsOfAFrozenPeerFinishWithoutIt) {
  start(4);
  ASSERT_TRUE(reach({0, 1, 2, 3}, 4, 2)) << logs();
  peers[0]->signal(SIGSTOP); // the first peer, because no peer is special
  ASSERT_TRUE(reach({1, 2, 3}, 3, 2)) << logs();
  peers[0]->signal(SIGCONT);
  expect_agreement();
}

// The client joins before the second node, and through the first one only.
TEST_F(AverageProcesses, AClientAndANodeThatAreLeftAverage) {
  auto arguments =
    words("average --elements 1024 --rounds 1 --matchmaking-time 5s --averaging-timeout 20s");
  auto add = [&](bool client) {
    auto with = arguments;
    if (!peers.empty())
      with.insert(with.end(), {"--initial-peers", to_string(*peers[0]->address())});
    if (client)
      with.emplace_back("--client-mode");
    peers.push_back(std::make_unique<peer>(folder, "peer" + std::to_string(peers.size()), with));
    return peers.back().get();
  };
  auto* first = add(false);
  (void)first->await_address();
  auto* leaves = add(true);
  auto* client = add(true);
  auto linked = [](const peer& who, const peer& with) {
    auto text = with.log();
    auto at = text.find("peer ");
    return at != std::string::npos
           && who.log().find("connected to peer " + text.substr(at + 5, 8)) != std::string::npos;
  };
  ASSERT_TRUE(eventually([&] { return linked(*leaves, *first) && linked(*client, *first); }));
  auto* node = add(false);
  ASSERT_TRUE(eventually([&] { return linked(*client, *node); })) << logs();
  first->signal(SIGTERM); // all are searching
  leaves->signal(SIGTERM);
  for (auto* left : {client, node}) {
    EXPECT_EQ(left->await_exit(60s), 0) << left->log();
    auto rounds = left->rounds();
    ASSERT_EQ(rounds.size(), 1U) << left->log();
    EXPECT_EQ(rounds[0]["contributors"].size(), 2U) << left->log();
  }
}

TEST_F(AverageProcesses, StopWithinFiveSecondsOnSigterm) {
  start(2);
  ASSERT_TRUE(reach({0, 1}, 2, 1)) << logs();
  for (auto& p : peers)
    p->signal(SIGTERM);
  for (auto& p : peers)
    EXPECT_EQ(p->await_exit(5s), 0) << p->log();
}

} // namespace
} // namespace waggle::testing
