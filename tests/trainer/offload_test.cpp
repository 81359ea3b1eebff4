// The optimizer in host memory, and passes that run while it steps.

#include <atomic>
#include <thread>

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "runtime/training/learner.hpp"
#include "tests/support/mean_gradient.hpp"
#include "tests/support/states.hpp"
#include "tests/trainer/lazy_device.hpp"
#include "tests/trainer/small_learner.hpp"
#include "trainer/parameter_copies.hpp"

namespace waggle {
namespace {

using testing::lazy_device;
using testing::mean_gradient_of;

std::unique_ptr<learner> make(bool offload, const std::string& optimizer = "adamw") {
  auto c = testing::small_learner(identity_with(optimizer, {}));
  c.offload_optimizer = offload;
  return testing::made(c);
}

void train(learner& model, int updates) {
  for (int i = 0; i < updates; ++i) {
    model.accumulate();
    model.apply(mean_gradient_of(model), 1e-2);
  }
}

TEST(Offload, AnOffloadedOptimizerTakesTheSameStepsBitForBit) {
  for (const char* optimizer : {"sgd", "adamw", "lamb", "muon"}) {
    auto plain = make(false, optimizer);
    auto offloaded = make(true, optimizer);
    train(*plain, 4);
    train(*offloaded, 4);
    EXPECT_EQ(testing::save_state(*plain), testing::save_state(*offloaded)) << optimizer;
  }
}

TEST(Offload, LocalStepsUseTheOffloadedOptimizerToo) {
  auto plain = make(false);
  auto offloaded = make(true);
  for (auto* model : {plain.get(), offloaded.get()})
    for (int i = 0; i < 4; ++i) {
      model->accumulate();
      model->step_locally(1e-2);
    }
  EXPECT_EQ(testing::save_state(*plain), testing::save_state(*offloaded));
}

TEST(Offload, AStateIsLoadedIntoBothCopies) {
  auto donor = make(false);
  train(*donor, 3);
  auto plain = make(false);
  auto offloaded = make(true);
  auto state = testing::save_state(*donor);
  for (auto* model : {plain.get(), offloaded.get()}) {
    ASSERT_TRUE(testing::load_state(*model, state));
    model->accumulate(); // of the loaded parameters, not of the first ones
  }
  EXPECT_EQ(mean_gradient_of(*plain), mean_gradient_of(*offloaded));
}

TEST(Offload, PassesAndUpdatesRunAtTheSameTime) {
  auto model = make(true);
  ASSERT_TRUE(model->abilities().passes_beside_updates);
  std::vector<float> gradient(model->parameter_count(), 1e-3F);
  std::atomic<bool> ended{false};
  std::thread passes{[&] {
    for (int i = 0; i < 50; ++i)
      EXPECT_TRUE(model->accumulate().finite);
    ended = true;
  }};
  int updates = 0;
  do {
    model->apply(gradient, 1e-3);
    ++updates;
  } while (!ended);
  passes.join();
  EXPECT_EQ(model->accumulated_samples(), 200U);
  auto alone = make(true);
  for (int i = 0; i < updates; ++i)
    alone->apply(gradient, 1e-3);
  EXPECT_EQ(model->parameters_digest(), alone->parameters_digest());
}

TEST(ParameterCopies, APassSeesTheNewestCompleteChange) {
  parameter_copies copies{torch::zeros({3}), true};
  copies.change([](torch::Tensor& master) { master.fill_(1); });
  EXPECT_EQ(copies.working()[0].item<float>(), 0);
  copies.refresh();
  EXPECT_EQ(copies.working()[0].item<float>(), 1);
}

TEST(ParameterCopies, APassDoesNotWaitForAChangeIfItHasTheOneBefore) {
  parameter_copies copies{torch::zeros({3}), true};
  copies.change([&](torch::Tensor& master) {
    master.fill_(1);
    std::thread{[&] { copies.refresh(); }}.join(); // would wait for ever
  });
  EXPECT_EQ(copies.working()[0].item<float>(), 0) << "half a change";
}

TEST(ParameterCopies, OnADeviceAPassReadsWhatRefreshCopied) {
  auto working = lazy_device::zeros({3});
  parameter_copies copies{working, true};
  std::vector<float> seen;
  auto pass = [&] {
    copies.refresh();
    lazy_device::enqueue([&] { seen.push_back(lazy_device::memory(working)[2]); });
  };
  pass();
  for (float value : {1.0F, 2.0F}) {
    copies.change([&](torch::Tensor& master) { master.fill_(value); });
    pass();
  }
  EXPECT_LT(seen.size(), 3U) << "no pass has been waited for";
  lazy_device::synchronize();
  EXPECT_EQ(seen, (std::vector<float>{0, 1, 2}));
}

TEST(ParameterCopies, AChangeWaitsForTheCopyThatAPassBegan) {
  auto working = lazy_device::zeros({3});
  parameter_copies copies{working, true};
  copies.change([](torch::Tensor& master) { master.fill_(1); });
  copies.refresh();
  EXPECT_EQ(lazy_device::memory(working)[0], 0) << "the copy is in flight";
  copies.change([](torch::Tensor& master) { master.fill_(2); });
  lazy_device::synchronize();
  EXPECT_EQ(lazy_device::memory(working)[0], 1) << "half a change, or the next one";
}

TEST(ParameterCopies, WithoutOffloadThereIsOneTensor) {
  parameter_copies copies{torch::zeros({3}), false};
  EXPECT_EQ(copies.master().data_ptr(), copies.working().data_ptr());
}

} // namespace
} // namespace waggle
