#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <system_error>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/scratch_folder.hpp"
#include "trainer/optimizer.hpp"

namespace waggle::testing {

/// A loop that is a run of its own, with a real socket: y = w·x + b.
class swarm_of_one : public ::testing::Test {
protected:
  [[nodiscard]] swarm_options options(std::uint64_t max_epochs = 0) const {
    return {.run = "one",
            .listen = "127.0.0.1:0",
            .data_dir = folder_ / "peer",
            .log_level = "error",
            .target_batch_size = 4,
            .max_epochs = max_epochs};
  }
  static std::unique_ptr<torch::optim::Optimizer> adam(const torch::nn::Linear& m) {
    return std::make_unique<torch::optim::AdamW>(m->parameters(), 1e-2);
  }
  /// The CPU, and a GPU if there is one.
  static std::vector<torch::Device> devices() {
    std::vector<torch::Device> all{torch::kCPU};
    if (torch::cuda::is_available())
      all.emplace_back(torch::kCUDA, 0);
    return all;
  }
  static torch::nn::Linear line(const torch::Device& device = torch::kCPU) {
    torch::nn::Linear m{3, 2};
    torch::NoGradGuard guard;
    m->weight.fill_(0.25);
    m->bias.fill_(-0.5);
    m->to(device);
    return m;
  }
  static torch::Tensor loss_of(torch::nn::Linear& m, std::uint64_t step) {
    auto x = torch::rand({4, 3}, at::detail::createCPUGenerator(step)).to(m->weight.device());
    return (m(x) - x.narrow(1, 0, 2)).pow(2).mean();
  }
  template <class Optimizer>
  static step_outcome train(torch::nn::Linear& m, Optimizer& with, std::uint64_t step) {
    with.zero_grad();
    auto loss = loss_of(m, step);
    loss.backward();
    return with.step(4, loss);
  }
  static std::string refusal(const swarm_options& o) {
    auto joined = join(o);
    return joined ? "" : joined.error().detail;
  }

  scratch_folder scratch_;
  const std::filesystem::path& folder_ = scratch_.path();
};

} // namespace waggle::testing
