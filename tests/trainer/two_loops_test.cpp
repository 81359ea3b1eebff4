// Two loops of one process as peers of a run, whose modules have running statistics.

#include <filesystem>
#include <future>
#include <map>
#include <string_view>

#include <gtest/gtest.h>
#include <unistd.h>

#include "tests/support/scratch_folder.hpp"
#include "trainer/optimizer.hpp"

namespace waggle {
namespace {

namespace fs = std::filesystem;

/// A linear layer and a normalization.
struct normalized_net : torch::nn::Module {
  torch::Tensor forward(const torch::Tensor& x) { return norm->forward(linear->forward(x)); }

  torch::nn::Linear linear = register_module("linear", torch::nn::Linear(3, 2));
  torch::nn::BatchNorm1d norm = register_module("norm", torch::nn::BatchNorm1d(2));
};

struct loop_case {
  const char* name;
  const char* strategy;
  std::map<std::string, std::string> more;
};

class TwoLoops : public ::testing::TestWithParam<loop_case> {
protected:
  /// A loop after its last step.
  struct ending {
    step_outcome last = step_outcome::held;
    std::uint64_t rounds = 0;
    torch::Tensor weight;
    torch::Tensor shared_weight;        // that of all peers
    torch::Tensor mean, inputs;         // of the run: the running mean, and the extra tensor
    torch::Tensor own_mean, own_inputs; // what they would approach without averaging
  };

  [[nodiscard]] swarm_options options(int number) const {
    swarm_options o{.run = "two",
                    .listen = number == 0 ? first_ : "127.0.0.1:0",
                    .data_dir = folder_ / std::to_string(number),
                    .log_level = "error"};
    if (number > 0)
      o.initial_peers = {first_};
    o.strategy = GetParam().strategy;
    o.max_epochs = 150; // many may pass before both are scheduled
    o.more = GetParam().more;
    o.more["min-peers"] = "2";
    return o;
  }

  /// Trains until the run is over. The inputs of the loops have different means.
  ending train(int number) const {
    normalized_net net;
    auto inputs = torch::zeros({3}); // a moving average
    auto o = options(number);
    if (!o.strategy.starts_with("diloco"))
      o.target_batch_size = 32;
    if (o.strategy == "local-updates")
      o.more["delay-state-averaging"] = "false"; // few passes after the last contribution
    auto swarm = join(o);
    EXPECT_TRUE(swarm) << swarm.error().detail;
    ending end;
    optimizer with{swarm,
                   net,
                   std::make_unique<torch::optim::SGD>(net.parameters(), 1e-2),
                   {{"inputs", inputs}}};
    auto random = at::detail::createCPUGenerator(static_cast<std::uint64_t>(number));
    while (end.last != step_outcome::finished) {
      with.zero_grad();
      auto x = torch::rand({8, 3}, random) + 10 * number;
      auto loss = (net.forward(x) - x.narrow(1, 0, 2)).pow(2).mean();
      with.scaled(loss).backward();
      inputs.mul_(0.9).add_(x.mean(0), 0.1);
      torch::NoGradGuard guard;
      end.own_inputs = x.mean(0);
      end.own_mean = net.linear->forward(x).mean(0);
      end.last = with.step(8, loss);
    }
    end.rounds = swarm->status().rounds;
    end.weight = net.linear->weight.clone();
    with.with_shared_weights([&] { end.shared_weight = net.linear->weight.clone(); });
    EXPECT_TRUE(torch::equal(net.linear->weight, end.weight));
    end.mean = net.norm->running_mean.clone();
    end.inputs = inputs;
    return end;
  }

private:
  /// An address of the loopback network that no other test uses, so that the port may be fixed: the
  /// second loop must know it.
  static std::string own_address() {
    auto pid = static_cast<unsigned>(::getpid());
    return "127." + std::to_string(1 + pid / 65'536 % 250) + "." + std::to_string(pid / 256 % 256)
           + "." + std::to_string(1 + pid % 250) + ":7700";
  }
  const std::string first_ = own_address();
  testing::scratch_folder scratch_;
  const fs::path& folder_ = scratch_.path();
};

/// How far two tensors are from each other, as a share of how far the other two are.
double share(const torch::Tensor& a, const torch::Tensor& b, const torch::Tensor& of_a,
             const torch::Tensor& of_b) {
  return ((a - b).norm() / (of_a - of_b).norm()).item<double>();
}

TEST_P(TwoLoops, AverageTheirRunningStatisticsAndExtraTensors) {
  auto other = std::async(std::launch::async, [this] { return train(1); });
  auto a = train(0);
  auto b = other.get();
  for (const auto* end : {&a, &b}) {
    ASSERT_EQ(end->last, step_outcome::finished);
    EXPECT_GT(end->rounds, 5U);
  }
  std::string_view strategy{GetParam().strategy};
  bool anchored = strategy.starts_with("diloco");
  if (anchored || strategy == "collaborative") {
    EXPECT_TRUE(torch::equal(a.shared_weight, b.shared_weight));
  }
  EXPECT_TRUE(anchored || torch::equal(a.weight, a.shared_weight));
  // Each pass since a loop contributed moves it by a tenth towards what it would have alone.
  EXPECT_LT(share(a.mean, b.mean, a.own_mean, b.own_mean), 0.25);
  EXPECT_LT(share(a.inputs, b.inputs, a.own_inputs, b.own_inputs), 0.25);
}

INSTANTIATE_TEST_SUITE_P(
  Strategies, TwoLoops,
  ::testing::Values(
    loop_case{"collaborative", "collaborative", {}},
    loop_case{"collaborativeinhostmemory", "collaborative", {{"offload-optimizer", "true"}}},
    loop_case{"diloco", "diloco:steps=4", {}}, loop_case{"localupdates", "local-updates", {}},
    loop_case{"localupdatesinhostmemory", "local-updates", {{"offload-optimizer", "true"}}},
    loop_case{"collaborativescaled", "collaborative", {{"loss-scale", "dynamic"}}},
    loop_case{"localupdatesscaled", "local-updates", {{"loss-scale", "dynamic"}}},
    loop_case{"averagedgradients", "local-updates", {{"average-gradients", "true"}}}),
  [](const auto& info) { return std::string{info.param.name}; });

/// Strategies that train on during rounds: peers differ by what they have learned since the last
/// one.
class LoopsThatTrainOn : public TwoLoops {
protected:
  /// The weights at the end of a run in whose last three quarters nothing is learned, so that only
  /// averages move them, and Adam's momentum for its first few rounds.
  torch::Tensor settled(int number) const {
    normalized_net net;
    auto swarm = join(options(number));
    EXPECT_TRUE(swarm) << swarm.error().detail;
    std::unique_ptr<torch::optim::Optimizer> inner;
    if (std::string_view{GetParam().strategy} == "decentralized-adam")
      inner = std::make_unique<torch::optim::Adam>(net.parameters(), 1e-2);
    else
      inner = std::make_unique<torch::optim::SGD>(net.parameters(), 1e-2);
    optimizer with{swarm, net, std::move(inner)};
    auto random = at::detail::createCPUGenerator(static_cast<std::uint64_t>(number));
    for (auto last = step_outcome::held; last != step_outcome::finished;) {
      with.zero_grad();
      auto x = torch::rand({8, 3}, random);
      auto loss = (net.forward(x) - (number + 1) * x.narrow(1, 0, 2)).pow(2).mean();
      (swarm->epoch() < 5 ? loss : 0 * loss).backward();
      last = with.step(8, loss);
    }
    EXPECT_GT(swarm->status().rounds, 5U);
    return net.linear->weight.clone();
  }
};

TEST_P(LoopsThatTrainOn, EndWithEqualParametersOnceNothingIsLearned) {
  auto other = std::async(std::launch::async, [this] { return settled(1); });
  auto a = settled(0);
  auto b = other.get();
  EXPECT_LT((a - b).norm().item<double>(), 1e-4 * a.norm().item<double>()) << a << b;
}

const std::map<std::string, std::string> ten_steps{{"averaging-steps-period", "10"}};

INSTANTIATE_TEST_SUITE_P(Strategies, LoopsThatTrainOn,
                         ::testing::Values(loop_case{"diloco", "diloco:steps=10", {}},
                                           loop_case{"decentralized", "decentralized", ten_steps},
                                           loop_case{"sgd", "decentralized-sgd", ten_steps},
                                           loop_case{"adam", "decentralized-adam", ten_steps}),
                         [](const auto& info) { return std::string{info.param.name}; });

} // namespace
} // namespace waggle
