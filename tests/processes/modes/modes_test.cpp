// Two trainers in each strategy; one is killed in the middle, and returns from its data folder.

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

std::uint64_t epoch_of(const nlohmann::json& status) {
  bool known = status.is_object() && status.contains("epoch") && status["epoch"].is_number();
  return known ? status["epoch"].get<std::uint64_t>() : 0;
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

INSTANTIATE_TEST_SUITE_P(
  Each, ModesOfProcesses,
  ::testing::Values(
    mode{"DelayedGradients", {"--delay-grad-averaging", "true", "--target-batch-size", "64"}, true},
    mode{"LowRank", {"--low-rank", "4", "--target-batch-size", "64"}, true},
    mode{"LocalUpdates", {"--strategy", "local-updates", "--target-batch-size", "64"}, false},
    mode{"DecentralizedAdam",
         {"--strategy", "decentralized-adam", "--averaging-steps-period", "8"},
         false}),
  [](const auto& info) { return std::string{info.param.name}; });

} // namespace
} // namespace waggle::testing
