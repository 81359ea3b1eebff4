// Two trainers in modes whose learners differ (tests/swarm/modes.hpp has all, with one learner);
// one is killed and returns from its data folder, is frozen and goes on.

#include <algorithm>
#include <cmath>

#include "runtime/config/run_options.hpp"
#include "tests/processes/checkpoints.hpp"
#include "tests/processes/peer.hpp"

namespace waggle::testing {
namespace {

constexpr std::uint64_t last_epoch = 250; // of the rounds
constexpr std::uint64_t micro_batch = 4;
/// The relative distance between the parameters of two peers that average them: they end with a
/// mean of both, but a peer that does not find the other one in time may end an epoch alone. Peers
/// that do not merge what they average end at least 0.045 apart (--alpha 1e-9).
constexpr double distance_max = 0.01;

struct mode {
  const char* name;
  std::vector<std::string> options;
  bool exact; // all peers end with the same parameters
  std::vector<std::string> of_second{};
  std::uint64_t warm_up = 0; // the epoch after which a peer is killed or frozen
  std::uint64_t replicas = 1;
  const char* step_interval = "5ms";
};

void PrintTo(const mode& m, std::ostream* out) {
  *out << m.name;
}

double number_of(const nlohmann::json& status, const char* name) {
  bool known = status.is_object() && status.contains(name) && status[name].is_number();
  EXPECT_TRUE(known) << name << " in " << status;
  return known ? status[name].get<double>() : 0;
}

std::uint64_t rounds_of(const nlohmann::json& status) {
  bool known = status.is_object() && status.contains("rounds");
  return known ? number(status["rounds"], "complete") : 0;
}

class ModesOfProcesses : public ::testing::TestWithParam<mode> {
protected:
  std::vector<std::string> command(const std::string& initial = {}) const {
    auto all = words("train --run-id modes --model mlp --width 16 --layers 1 --linger 2s "
                     "--checkpoint-interval 100ms",
                     {"--micro-batch", std::to_string(micro_batch), "--step-interval",
                      GetParam().step_interval, "--epochs", std::to_string(last_epoch)});
    all.insert(all.end(), GetParam().options.begin(), GetParam().options.end());
    if (!initial.empty()) {
      all.insert(all.end(), {"--initial-peers", initial});
      all.insert(all.end(), GetParam().of_second.begin(), GetParam().of_second.end());
    }
    return all;
  }

  /// Both are in one group again, and average with each other before the last epoch.
  static void expect_to_average_again(const peer& first, const peer& second) {
    std::optional<std::uint64_t> ours;
    std::optional<std::uint64_t> theirs;
    EXPECT_TRUE(eventually([&] {
      auto a = status_of(first);
      auto b = status_of(second);
      if (number(a, "group_size") != 2 || number(b, "group_size") != 2)
        return false;
      ours = ours.value_or(rounds_of(a));
      theirs = theirs.value_or(rounds_of(b));
      return rounds_of(a) > *ours + 2 && rounds_of(b) > *theirs + 2;
    }))
      << first.log() << second.log();
  }

  /// Both reach the last epoch, have equal or nearly equal parameters, have lost no sample, and end
  /// cleanly.
  void expect_to_end_together(peer& first, peer& second) const {
    expect_to_average_again(first, second);
    nlohmann::json ours;
    nlohmann::json theirs;
    EXPECT_TRUE(eventually([&] {
      ours = status_of(first);
      theirs = status_of(second);
      return number(ours, "epoch") == last_epoch && number(theirs, "epoch") == last_epoch
             && ours["phase"] == "finished" && theirs["phase"] == "finished";
    }))
      << first.log() << second.log();
    EXPECT_EQ(ours["learning_rate"], theirs["learning_rate"]);
    const auto& options = GetParam().options;
    auto schedule = std::find(options.begin(), options.end(), "--schedule");
    bool falls = schedule != options.end();
    auto lr = std::find(options.begin(), options.end(), "--lr");
    auto peak = lr == options.end() ? run_options{}.lr : std::stod(*std::next(lr));
    EXPECT_EQ(ours["learning_rate"].get<double>() < peak, falls);
    EXPECT_EQ(ours["parameters"].is_null() || ours["parameters"] == "", !GetParam().exact);
    if (GetParam().exact) {
      EXPECT_EQ(ours["parameters"], theirs["parameters"]);
    }
    expect_samples_accounted(first, micro_batch * GetParam().replicas);
    expect_samples_accounted(second, micro_batch * GetParam().replicas);
    // A first loss is of a few samples, so it may be small by chance.
    auto untrained = std::log(256); // of bytes
    for (const auto& status : {ours, theirs})
      EXPECT_TRUE(number_of(status, "loss") < 0.9 * untrained) << status;
    EXPECT_EQ(first.await_exit(30s), 0) << first.log();
    EXPECT_EQ(second.await_exit(30s), 0) << second.log();
    auto a = last_checkpoint(folder.path() / "first");
    auto b = last_checkpoint(folder.path() / "second");
    EXPECT_EQ(a.epoch, last_epoch);
    EXPECT_EQ(b.epoch, last_epoch);
    EXPECT_LE(relative_distance(a.parameters, b.parameters), GetParam().exact ? 0 : distance_max);
  }

  scratch_folder folder;
};

TEST_P(ModesOfProcesses, APeerThatWasKilledAndThenFrozenIsInStepAgainAndAllReachTheEnd) {
  peer first{folder, "first", command()};
  auto where = to_string(first.await_address());
  {
    peer second{folder, "second", command(where)};
    ASSERT_TRUE(eventually([&] {
      auto s = status_of(second);
      return rounds_of(s) >= 5 && number(s, "epoch") > GetParam().warm_up;
    }))
      << second.log();
    second.signal(SIGKILL);
    ASSERT_TRUE(second.await_signal());
  }
  peer second{folder, "second", command(where)};
  expect_to_average_again(first, second);
  second.signal(SIGSTOP);
  std::uint64_t alone = 0; // the epoch at which the first one went on alone
  EXPECT_TRUE(eventually([&] {
    auto s = status_of(first);
    bool is = number(s, "group_size") == 1;
    alone = is && alone == 0 ? number(s, "epoch") : alone;
    return is && number(s, "epoch") > alone + 2;
  }))
    << first.log();
  second.signal(SIGCONT);
  expect_to_end_together(first, second);
}

INSTANTIATE_TEST_SUITE_P(
  Each, ModesOfProcesses,
  ::testing::Values(
    mode{"Collaborative",
         {"--optimizer", "adam", "--schedule", "cosine", "--target-batch-size", "64"},
         true},
    mode{"Diloco", {"--strategy", "diloco:steps=8,overlap=2", "--optimizer", "adam"}, true},
    // Killed and frozen after the warm-up, in rounds that are merged a batch after they began.
    mode{.name = "Daso",
         .options = {"--strategy",
                     "daso:epochs=1000,batches=50,warmup=1,cooldown=1,skip-reduction=1",
                     "--replicas", "2", "--min-peers", "2"},
         .exact = true,
         .warm_up = 50,
         .replicas = 2,
         .step_interval = "20ms"},
    // The run must last until the one that was killed has started again.
    mode{
      .name = "DataParallelBuckets",
      .options = {"--strategy", "data-parallel:buckets=1", "--optimizer", "adam", "--lr", "0.01"},
      .exact = true,
      .step_interval = "40ms"},
    mode{"LowRank", {"--low-rank", "4", "--target-batch-size", "64"}, true},
    mode{"AllDelayedInReusedBuffersOfOne", // FTTTT
         {"--delay-grad-averaging", "true", "--optimizer", "lamb", "--lr", "0.01", "--codec",
          "float16", "--target-batch-size", "64"},
         true,
         {"--delay-optimizer-step", "true", "--reuse-grad-buffers", "true"}},
    mode{"LocalUpdates", {"--strategy", "local-updates", "--target-batch-size", "64"}, false},
    mode{"DecentralizedSgdOnAGrid",
         {"--strategy", "decentralized-sgd", "--lr", "0.1", "--averaging-steps-period", "4",
          "--averaging-time-period", "50ms", "--average-gradients", "true",
          "--total-steps-in-epoch", "32", "--schedule", "step:every=30,factor=0.8"},
         false},
    mode{"OffloadedBfloat16",
         {"--precision", "bfloat16", "--offload-optimizer", "true", "--max-gradient-norm", "0.5",
          "--target-batch-size", "64"},
         true}),
  [](const auto& info) { return std::string{info.param.name}; });

} // namespace
} // namespace waggle::testing
