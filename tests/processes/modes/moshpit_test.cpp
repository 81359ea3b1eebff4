// Four trainers that average in pairs found anew for each round; one is killed and returns from its
// data folder while another one is frozen for a while. Two trainers and an auxiliary, which is
// killed.

#include <array>
#include <memory>

#include "tests/processes/checkpoints.hpp"
#include "tests/processes/peer.hpp"

namespace waggle::testing {
namespace {

constexpr std::size_t peers = 4;
constexpr std::uint64_t last_epoch = 60;
constexpr std::uint64_t micro_batch = 4;
/// The relative distance between the parameters of two peers at the end. Of four in pairs it was at
/// most 0.017, and at least 0.1 without merging what they average (--alpha 1e-9).
constexpr double distance_max = 0.05;

/// Rounds that it completed in groups of two.
std::uint64_t rounds_of(const peer& who) {
  auto status = status_of(who);
  if (!status.is_object() || !status.contains("rounds"))
    return 0;
  auto where = *who.address();
  auto members = metric(where, "waggle_matchmaking_group_size_sum");
  auto groups = metric(where, "waggle_matchmaking_group_size_count"); // later, so perhaps more
  if (members < 0 || groups < 0)
    return 0; // it does not answer
  EXPECT_LE(members, 2 * groups);
  return std::min(number(status["rounds"], "complete"), static_cast<std::uint64_t>(groups));
}

class PairsOfProcesses : public ::testing::Test {
protected:
  void start(std::size_t n, bool auxiliary = false) {
    auto all =
      words("train --run-id pairs --model mlp --width 16 --layers 1 --strategy decentralized-adam "
            "--averaging-steps-period 16 --groups moshpit --target-group-size 2 "
            "--matchmaking-time 300ms --request-timeout 200ms --stall-timeout 1s "
            "--step-interval 10ms --checkpoint-interval 100ms --linger 2s",
            {"--epochs", std::to_string(last_epoch)});
    if (auxiliary)
      all.insert(all.end(), {"--auxiliary", "true"});
    else
      all.insert(all.end(), {"--micro-batch", std::to_string(micro_batch)});
    if (n > 0)
      all.insert(all.end(), {"--initial-peers", to_string(all_[0]->await_address())});
    all_[n] = std::make_unique<peer>(folder_, "peer" + std::to_string(n), all);
  }
  peer& operator[](std::size_t n) { return *all_[n]; }
  std::string logs() const {
    std::string text;
    for (const auto& p : all_)
      text += p ? p->log() + "\n" : "";
    return text;
  }
  /// Whether each of them has completed `more` rounds with another peer since now.
  bool average(const std::vector<std::size_t>& who, std::uint64_t more) {
    std::map<std::size_t, std::uint64_t> began;
    for (auto n : who)
      began[n] = rounds_of(*all_[n]);
    return eventually([&] {
      return std::all_of(who.begin(), who.end(),
                         [&](auto n) { return rounds_of(*all_[n]) >= began[n] + more; });
    });
  }

  /// The first `count` reach the last epoch with a smaller loss and nearly equal parameters, have
  /// lost no sample, and end cleanly. Returns their last status.
  std::vector<nlohmann::json> expect_to_end_near_each_other(std::size_t count) {
    std::vector<nlohmann::json> last(count);
    double loss_at_first = 0; // those that returned began with a smaller one
    for (std::size_t n = 0; n < count; ++n) {
      EXPECT_TRUE(eventually([&] {
        last[n] = status_of(*all_[n]);
        return number(last[n], "epoch") == last_epoch && last[n].value("phase", "") == "finished";
      }))
        << n << "\n"
        << all_[n]->log();
      loss_at_first = std::max(loss_at_first, last[n].value("first_loss", 0.0));
      expect_samples_accounted(*all_[n], micro_batch);
    }
    checkpoint first;
    for (std::size_t n = 0; n < count; ++n) {
      SCOPED_TRACE("peer " + std::to_string(n));
      EXPECT_LT(last[n].value("loss", loss_at_first), 0.9 * loss_at_first) << last[n];
      EXPECT_EQ(all_[n]->await_exit(30s), 0) << all_[n]->log();
      auto end = last_checkpoint(folder_.path() / ("peer" + std::to_string(n)));
      EXPECT_EQ(end.epoch, last_epoch);
      if (n == 0)
        first = end;
      EXPECT_LE(relative_distance(first.parameters, end.parameters), distance_max);
    }
    return last;
  }

private:
  scratch_folder folder_;
  std::array<std::unique_ptr<peer>, peers> all_;
};

TEST_F(PairsOfProcesses, PeersThatWereKilledOrFrozenGoOnInStepToTheEnd) {
  for (std::size_t n = 0; n < peers; ++n)
    start(n);
  ASSERT_TRUE(average({0, 1, 2, 3}, 3)) << logs();
  (*this)[3].signal(SIGSTOP);
  (*this)[2].signal(SIGKILL);
  ASSERT_TRUE((*this)[2].await_signal());
  ASSERT_TRUE(average({0, 1}, 3)) << "the two that are left\n" << logs();
  auto frozen_at = epoch_of((*this)[0]);
  start(2);
  ASSERT_TRUE(average({0, 1, 2}, 2)) << "and the one that has returned\n" << logs();
  (*this)[3].signal(SIGCONT);
  EXPECT_TRUE(average({0, 1, 2, 3}, 3)) << logs();
  EXPECT_LT(epoch_of((*this)[0]), last_epoch) << "too late to prove anything";
  EXPECT_GT(epoch_of((*this)[3]), frozen_at);
  expect_to_end_near_each_other(peers);
}

TEST_F(PairsOfProcesses, AnAuxiliaryReducesBesideAPairWhichGoesOnWithoutIt) {
  for (std::size_t n = 0; n < 2; ++n)
    start(n);
  start(2, true);
  auto& auxiliary = (*this)[2];
  EXPECT_TRUE(eventually([&] {
    auto s = status_of(auxiliary);
    return s.is_object() && s.contains("rounds") && number(s["rounds"], "complete") >= 5;
  }))
    << logs();
  EXPECT_LT(epoch_of((*this)[0]), last_epoch) << "too late to prove anything";
  EXPECT_EQ(number(status_of(auxiliary), "steps"), 0U);
  auxiliary.signal(SIGKILL);
  ASSERT_TRUE(auxiliary.await_signal());
  for (const auto& s : expect_to_end_near_each_other(2))
    EXPECT_GT(number(s["rounds"], "complete"), last_epoch / 2) << s;
}

} // namespace
} // namespace waggle::testing
