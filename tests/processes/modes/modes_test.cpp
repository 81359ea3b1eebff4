// Two trainers in each strategy; one is killed and returns from its data folder, or is frozen and
// goes on.

#include "tests/processes/peer.hpp"

namespace waggle::testing {
namespace {

constexpr std::uint64_t last_epoch = 200;

struct mode {
  const char* name;
  std::vector<std::string> options;
  bool exact; // all peers end with the same parameters
};

void PrintTo(const mode& m, std::ostream* out) {
  *out << m.name;
}

nlohmann::json status_of(const peer& who) {
  auto where = who.address();
  if (!where)
    return {};
  auto answer = net::http_get(*where, "/api/v1/status", 5s);
  return answer ? nlohmann::json::parse(answer->body, nullptr, false) : nlohmann::json{};
}

std::uint64_t number(const nlohmann::json& status, const char* name) {
  bool known = status.is_object() && status.contains(name) && status[name].is_number();
  return known ? status[name].get<std::uint64_t>() : 0;
}

std::uint64_t epoch_of(const nlohmann::json& status) {
  return number(status, "epoch");
}

class ModesOfProcesses : public ::testing::TestWithParam<mode> {
protected:
  std::vector<std::string> command(const std::string& initial) const {
    std::vector<std::string> all{"train",
                                 "--run-id",
                                 "modes",
                                 "--model",
                                 "mlp",
                                 "--width",
                                 "16",
                                 "--layers",
                                 "1",
                                 "--micro-batch",
                                 "4",
                                 "--step-interval",
                                 "5ms",
                                 "--checkpoint-interval",
                                 "100ms",
                                 "--epochs",
                                 std::to_string(last_epoch),
                                 "--linger",
                                 "2s"};
    all.insert(all.end(), GetParam().options.begin(), GetParam().options.end());
    if (!initial.empty())
      all.insert(all.end(), {"--initial-peers", initial});
    return all;
  }

  /// Both reach the last epoch, and end cleanly.
  static void expect_to_end_together(peer& first, peer& second) {
    nlohmann::json ours;
    nlohmann::json theirs;
    EXPECT_TRUE(eventually([&] {
      ours = status_of(first);
      theirs = status_of(second);
      return epoch_of(ours) == last_epoch && epoch_of(theirs) == last_epoch
             && ours["phase"] == "finished" && theirs["phase"] == "finished";
    }))
      << first.log() << second.log();
    EXPECT_EQ(ours["parameters"].is_null() || ours["parameters"] == "", !GetParam().exact);
    if (GetParam().exact) {
      EXPECT_EQ(ours["parameters"], theirs["parameters"]);
    }
    EXPECT_EQ(first.await_exit(30s), 0) << first.log();
    EXPECT_EQ(second.await_exit(30s), 0) << second.log();
  }

  scratch_folder folder;
};

TEST_P(ModesOfProcesses, APeerThatWasKilledReturnsAndAllReachTheEnd) {
  peer first{folder, "first", command({})};
  auto where = to_string(first.await_address());
  {
    peer second{folder, "second", command(where)};
    ASSERT_TRUE(eventually([&] {
      auto s = status_of(second);
      return s.is_object() && s.contains("rounds") && s["rounds"]["complete"].get<int>() >= 5;
    }))
      << second.log();
    second.signal(SIGKILL);
    ASSERT_TRUE(second.await_signal());
  }
  peer second{folder, "second", command(where)};
  expect_to_end_together(first, second);
}

TEST_P(ModesOfProcesses, APeerThatWasFrozenGoesOnInStep) {
  peer first{folder, "first", command({})};
  peer second{folder, "second", command(to_string(first.await_address()))};
  ASSERT_TRUE(eventually([&] { return number(status_of(first), "group_size") == 2; }));
  second.signal(SIGSTOP);
  std::uint64_t alone = 0; // the epoch at which the first one went on alone
  EXPECT_TRUE(eventually([&] {
    auto s = status_of(first);
    bool is = number(s, "group_size") == 1;
    alone = is && alone == 0 ? epoch_of(s) : alone;
    return is && epoch_of(s) > alone + 2;
  }))
    << first.log();
  second.signal(SIGCONT);
  expect_to_end_together(first, second);
}

INSTANTIATE_TEST_SUITE_P(
  Each, ModesOfProcesses,
  ::testing::Values(
    mode{"DelayedGradients", {"--delay-grad-averaging", "true", "--target-batch-size", "64"}, true},
    mode{"DelayedSteps",
         {"--delay-optimizer-step", "true", "--codec", "uniform8", "--target-batch-size", "64"},
         true},
    mode{"LowRank", {"--low-rank", "4", "--target-batch-size", "64"}, true},
    mode{"LocalUpdates", {"--strategy", "local-updates", "--target-batch-size", "64"}, false},
    mode{"DecentralizedAdam",
         {"--strategy", "decentralized-adam", "--averaging-steps-period", "8"},
         false}),
  [](const auto& info) { return std::string{info.param.name}; });

} // namespace
} // namespace waggle::testing
