// Averaged gradients against plain loops of LibTorch.

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "runtime/core/random.hpp"
#include "runtime/training/averaged_tensors.hpp"
#include "runtime/training/layers.hpp"
#include "runtime/training/learner.hpp"
#include "tests/trainer/byte_model.hpp"
#include "tests/trainer/small_learner.hpp"

namespace waggle {
namespace {

constexpr double rate = 0.05;
constexpr double momentum = 0.9;

learner_config small(std::uint64_t data_seed) {
  auto c = testing::small_learner(identity_with("sgd", {{"momentum", momentum}}));
  c.data_seed = data_seed;
  return c;
}

torch::Tensor flat(const std::vector<torch::Tensor>& tensors) {
  std::vector<torch::Tensor> rows;
  for (const auto& t : tensors)
    rows.push_back(t.reshape({-1}));
  return torch::cat(rows);
}

/// Adds `values`, which stand one after another, to the tensors.
void add(const std::vector<torch::Tensor>& tensors, const torch::Tensor& values) {
  torch::NoGradGuard guard;
  std::int64_t at = 0;
  for (auto t : tensors) {
    t.add_(values.narrow(0, at, t.numel()).view(t.sizes()));
    at += t.numel();
  }
}

/// What a user of torch would write: the correction is added to .grad after the backward pass.
struct plain_peer {
  explicit plain_peer(const learner_config& config)
    : micro_batch(config.micro_batch), model(make_byte_model(config)),
      sampler(*open_data(config), static_cast<std::size_t>(config.context) + 1,
              random_source{config.data_seed}),
      optimizer(model->parameters(), torch::optim::SGDOptions(rate).momentum(momentum)) {}

  void step() {
    optimizer.zero_grad();
    loss_of(*model, *next_batch(sampler, micro_batch, torch::kCPU)).backward();
    gradient = gradients().clone();
    if (correction.defined()) {
      std::vector<torch::Tensor> grads;
      for (const auto& p : model->parameters())
        grads.push_back(p.grad());
      add(grads, correction);
      correction = torch::Tensor{};
    }
    optimizer.step();
  }
  [[nodiscard]] torch::Tensor gradients() const {
    std::vector<torch::Tensor> grads;
    for (const auto& p : model->parameters())
      grads.push_back(p.grad());
    return flat(grads);
  }
  [[nodiscard]] torch::Tensor parameters() const {
    torch::NoGradGuard guard;
    return flat(model->parameters());
  }

  std::int64_t micro_batch;
  std::shared_ptr<classifier> model;
  window_sampler sampler;
  torch::optim::SGD optimizer;
  torch::Tensor gradient;   // of the last step
  torch::Tensor correction; // of the next one
};

// Two peers; each second step begins a round, which ends after the step that follows.
TEST(AveragedGradientsOfTorch, AreThoseOfPlainLoopsThatAddTheChangeToTheirGrad) {
  for (bool offload : {false, true}) {
    std::vector<std::unique_ptr<plain_peer>> plain;
    std::vector<std::unique_ptr<learner>> ours;
    std::vector<learner*> local;
    for (std::uint64_t seed : {1, 2}) {
      auto config = small(seed);
      plain.push_back(std::make_unique<plain_peer>(config));
      config.offload_optimizer = offload;
      auto made = with_averaged_gradients([config] { return make_torch_learner(config); }, true)();
      ours.push_back(std::move(*made));
      local.push_back(ours.back().get());
    }
    auto lane = find_strategy("decentralized")->make({.average_gradients = true}).averages;
    auto averaged = *averaged_tensors::of(ours.front()->tensors(), lane);
    std::vector<float_vector> snapshots(2);
    std::vector<torch::Tensor> plain_snapshots(2);
    auto step = [&] {
      for (std::size_t i = 0; i < 2; ++i) {
        plain[i]->step();
        local[i]->accumulate();
        local[i]->step_locally(rate);
      }
    };
    for (int round = 0; round < 6; ++round) {
      step();
      for (std::size_t i = 0; i < 2; ++i) {
        plain_snapshots[i] = torch::cat({plain[i]->parameters(), plain[i]->gradient}).clone();
        snapshots[i].resize(averaged->value_count());
        local[i]->copy_tensors(averaged->indices(), snapshots[i]);
      }
      step();
      auto plain_mean = (plain_snapshots[0] + plain_snapshots[1]) / 2;
      float_vector mean(averaged->value_count());
      for (std::size_t k = 0; k < mean.size(); ++k)
        mean[k] = (snapshots[0][k] + snapshots[1][k]) / 2;
      for (std::size_t i = 0; i < 2; ++i) {
        auto change = (plain_mean - plain_snapshots[i]).chunk(2);
        add(plain[i]->model->parameters(), change[0]);
        plain[i]->correction = change[1];
        local[i]->add_change(averaged->indices(), mean, snapshots[i]);
      }
    }
    for (std::size_t i = 0; i < 2; ++i) {
      auto expected = plain[i]->parameters();
      std::vector<float> values(averaged->value_count() / 2);
      std::size_t at = 0;
      for (std::size_t k = 0; at < values.size(); ++k) {
        auto part = std::span{values}.subspan(at, ours[i]->tensors()[k].elements());
        ours[i]->read_tensor(k, part);
        at += part.size();
      }
      auto found = torch::from_blob(values.data(), {static_cast<std::int64_t>(values.size())});
      EXPECT_LT((found - expected).abs().max().item<float>(), 1e-5F)
        << "peer " << i << (offload ? ", offloaded" : "");
    }
  }
}

} // namespace
} // namespace waggle
