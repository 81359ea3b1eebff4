// The recipe with which hivemind's example trains ALBERT, with a small model and a small batch:
// four trainers with one run file. The example accumulates two passes of four samples; here that is
// one of eight. Its groups have up to 256 peers, here up to 64. Its line of 100 Mb/s is 12.5 MB/s.

#include <algorithm>
#include <memory>

#include "tests/processes/peer.hpp"

namespace waggle::testing {
namespace {

constexpr std::size_t peers = 4;
constexpr std::uint64_t last_epoch = 60;
constexpr double peak = 0.2; // the steps are few
constexpr std::uint64_t warmup = 8;

constexpr auto recipe = R"(
run-id = "albert"
target-batch-size = 4096
micro-batch = 8
context = 512
optimizer = "lamb"
lr = 0.00176
epsilon = 1e-6
weight-decay = 0.01
no-decay = "vectors"
max-gradient-norm = 1.0
schedule = "warmup-linear:warmup=5000"
epochs = 125000
codec = "float16"
delay-grad-averaging = true
delay-optimizer-step = true
offload-optimizer = true
target-group-size = 64
bandwidth = 12500000
averaging-timeout = "60s"
max-refresh-period = "30s"
report-expiration = "120s"
)";

struct Albert : ::testing::Test {
  Albert() { std::ofstream{file} << recipe; }

  std::unique_ptr<peer> start(const std::string& name, const std::string& initial) const {
    auto all = words(
      "train --layers 1 --width 16 --heads 2 --context 16 --device cpu --target-batch-size 64 "
      "--micro-batch 4 --step-interval 5ms --linger 2s",
      {"--config", file.string(), "--lr", std::to_string(peak), "--schedule",
       "warmup-linear:warmup=" + std::to_string(warmup), "--epochs", std::to_string(last_epoch),
       "--min-peers", std::to_string(peers)});
    if (!initial.empty())
      all.insert(all.end(), {"--initial-peers", initial});
    return std::make_unique<peer>(folder, name, all);
  }

  scratch_folder folder;
  const std::filesystem::path file = folder.path() / "albert.toml";
};

TEST_F(Albert, FourPeersReachTheEndWithEqualParametersAndASmallerLoss) {
  std::vector<std::unique_ptr<peer>> all;
  std::string first;
  for (std::size_t i = 0; i < peers; ++i) {
    all.push_back(start("peer" + std::to_string(i), first));
    if (i == 0)
      first = to_string(all[0]->await_address());
  }
  auto logs = [&] {
    std::string text;
    for (const auto& p : all)
      text += p->log() + "\n";
    return text;
  };
  std::vector<nlohmann::json> last(peers);
  ASSERT_TRUE(eventually([&] {
    for (std::size_t i = 0; i < peers; ++i)
      if (auto s = status_of(*all[i]); s.is_object() && s.value("phase", "") == "finished")
        last[i] = s;
    return std::all_of(last.begin(), last.end(), [](const auto& s) { return s.is_object(); });
  }))
    << logs();
  for (const auto& s : last) {
    EXPECT_EQ(s["epoch"], last_epoch);
    EXPECT_EQ(s["parameters"], last[0]["parameters"]);
    EXPECT_TRUE(s["parameters"].is_string()) << s;
    auto rate = peak / static_cast<double>(last_epoch - warmup); // of the last update
    EXPECT_NEAR(s["learning_rate"].get<double>(), rate, 1e-6);
    EXPECT_LT(s["loss"].get<double>(), 0.9 * s["first_loss"].get<double>()) << s;
    EXPECT_GT(s["rounds"]["complete"], last_epoch / 2) << s;
  }
  for (const auto& p : all)
    EXPECT_EQ(p->await_exit(30s), 0) << p->log();
}

} // namespace
} // namespace waggle::testing
