#include "trainer/host_staging.hpp"

#include <memory>
#include <optional>
#include <thread>
#include <vector>

#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <gtest/gtest.h>

#include "tests/trainer/lazy_device.hpp"

namespace waggle {
namespace {

using testing::lazy_device;

constexpr std::size_t two_floats = 8; // a buffer that a test fills several times

torch::Tensor numbers(torch::IntArrayRef sizes, torch::ScalarType type = torch::kFloat32) {
  return torch::arange(1, 1 + c10::multiply_integers(sizes), torch::kInt64).to(type).view(sizes);
}

std::vector<float> list(const torch::Tensor& tensor) {
  auto values = lazy_device::memory(tensor);
  return {values.begin(), values.end()};
}

// -- on a CPU -------------------------------------------------------------------------------------

TEST(HostStaging, OnACpuItCopiesNothingThatIsThereAlready) {
  host_staging staging{torch::kCPU};
  auto values = numbers({5});
  EXPECT_EQ(staging.to_host(values).data_ptr(), values.data_ptr());
  EXPECT_EQ(staging.to_device(values).data_ptr(), values.data_ptr());
}

TEST(HostStaging, OnACpuEveryCopyHasEndedWhenItReturns) {
  host_staging staging{torch::kCPU, two_floats};
  auto values = numbers({5});
  auto copied = [&](auto copy) {
    auto to = torch::zeros({5});
    copy(to);
    return to.equal(values);
  };
  EXPECT_TRUE(copied([&](const auto& to) { staging.to_host(values, to); }));
  EXPECT_TRUE(copied([&](const auto& to) { staging.to_host_since_mark(values, to); }));
  EXPECT_TRUE(copied([&](const auto& to) { staging.to_device(values, to); }));
  EXPECT_TRUE(copied([&](const auto& to) { staging.begin_to_device(values, to); }));
  staging.mark();
  staging.wait();
}

TEST(HostStaging, MemoryForACpuIsNotPinned) {
  auto memory = host_memory_for(torch::kCPU, {2, 3}, torch::kInt64);
  EXPECT_EQ(memory.sizes(), (std::vector<std::int64_t>{2, 3}));
  EXPECT_EQ(memory.dtype(), torch::kInt64);
  EXPECT_FALSE(memory.is_pinned());
}

// -- what is copied -------------------------------------------------------------------------------

TEST(HostStaging, KeepsValuesOfAllTypesAndShapesWhateverFitsIntoABuffer) {
  for (auto device : {torch::Device{torch::kCPU}, lazy_device::device()})
    for (std::size_t buffer : {1, 8, 24, 4096}) { // 1: shorter than a value
      host_staging staging{device, buffer};
      for (auto type :
           {torch::kFloat32, torch::kFloat64, torch::kHalf, torch::kInt64, torch::kUInt8})
        for (const auto& sizes : std::vector<std::vector<std::int64_t>>{
               {0}, {1}, {2}, {7}, {3, 5}, {2, 3, 4}, {2, 0, 3}, {}}) {
          auto values = numbers(sizes, type);
          auto there = staging.to_device(values);
          ASSERT_EQ(there.device(), device);
          auto back = staging.to_host(there);
          ASSERT_TRUE(back.is_cpu());
          ASSERT_EQ(back.dtype(), type);
          ASSERT_EQ(back.sizes(), torch::IntArrayRef{sizes});
          ASSERT_TRUE(back.equal(values)) << type << " " << sizes << ", buffer " << buffer;
        }
    }
}

TEST(HostStaging, TheShapesOfACopyMayDifferIfTheNumbersOfValuesDoNot) {
  host_staging staging{lazy_device::device(), two_floats};
  auto there = lazy_device::zeros({6});
  staging.to_device(numbers({2, 3}), there);
  auto back = torch::zeros({3, 2});
  staging.to_host(there, back);
  EXPECT_TRUE(back.equal(numbers({3, 2})));
}

TEST(HostStaging, ACopyOfAnotherSizeOrTypeIsABug) {
  for (auto device : {torch::Device{torch::kCPU}, lazy_device::device()}) {
    host_staging staging{device};
    auto there = torch::empty({4}, torch::TensorOptions{}.device(device));
    EXPECT_DEATH(staging.to_host(there, torch::zeros({3})), "number of values");
    EXPECT_DEATH(staging.to_device(numbers({4}, torch::kInt64), there), "type");
    EXPECT_DEATH(staging.to_device(torch::zeros({4, 2}).select(1, 0), there), "contiguous");
  }
}

// -- in which order -------------------------------------------------------------------------------

struct Staging : ::testing::Test {
  torch::Tensor there = lazy_device::zeros({5});
  std::optional<host_staging> staging{std::in_place, lazy_device::device(), two_floats};

  void TearDown() override { lazy_device::synchronize(); } // passes refer to this

  /// Appends a pass to the compute stream: it writes to the tensor.
  void enqueue_write(float value) {
    lazy_device::enqueue([this, value] {
      for (float& x : lazy_device::memory(there))
        x = value;
    });
  }
  /// Appends a pass that reads the tensor; `seen` has its values when it has run.
  std::shared_ptr<std::vector<float>> enqueue_read() {
    auto seen = std::make_shared<std::vector<float>>();
    lazy_device::enqueue([this, seen] { *seen = list(there); });
    return seen;
  }
  static std::vector<float> all(float value) { return std::vector<float>(5, value); }
};

TEST_F(Staging, ACopyToTheHostWaitsForThePassesBeforeIt) {
  enqueue_write(7);
  auto to = torch::zeros({5});
  staging->to_host(there, to);
  EXPECT_EQ(list(to), all(7));
}

TEST_F(Staging, ACopySinceAMarkDoesNotWaitForPassesAfterTheMark) {
  enqueue_write(1);
  staging->mark();
  enqueue_write(2);
  auto to = torch::zeros({5});
  staging->to_host_since_mark(there, to);
  EXPECT_EQ(list(to), all(1));
  lazy_device::synchronize();
  EXPECT_EQ(list(there), all(2));
}

TEST_F(Staging, AMarkHoldsForCopiesOfOtherThreads) {
  enqueue_write(1);
  staging->mark();
  auto to = torch::zeros({5});
  std::thread{[&] { staging->to_host_since_mark(there, to); }}.join();
  EXPECT_EQ(list(to), all(1));
}

TEST_F(Staging, ACopySinceAMarkIsNotChangedByACopyWithoutOne) {
  enqueue_write(1);
  staging->mark();
  auto to = torch::zeros({5});
  {
    c10::impl::VirtualGuardImpl device{lazy_device::device().type()};
    c10::StreamGuard on{device.getStreamFromGlobalPool(lazy_device::device())};
    staging->to_host(lazy_device::zeros({5}), to); // of another stream, on which there is no pass
  }
  enqueue_write(2);
  staging->to_host_since_mark(there, to);
  EXPECT_EQ(list(to), all(1));
}

TEST_F(Staging, PassesBeforeACopyToTheDeviceSeeTheOldValuesAndPassesAfterItTheNewOnes) {
  for (bool begun : {false, true}) {
    there = lazy_device::zeros({5});
    auto before = enqueue_read();
    auto values = numbers({5});
    if (begun)
      staging->begin_to_device(values, there);
    else
      staging->to_device(values, there);
    auto after = enqueue_read();
    staging->wait(); // what the copy did not wait for runs later
    lazy_device::synchronize();
    EXPECT_EQ(*before, all(0)) << begun;
    EXPECT_EQ(*after, (std::vector<float>{1, 2, 3, 4, 5})) << begun;
  }
}

TEST_F(Staging, AfterACopyToTheDeviceItsSourceMayChangeAndTheBuffersAreUsedAgain) {
  auto values = numbers({5});
  staging->to_device(values, there);
  values.fill_(9);
  auto first = enqueue_read();
  auto other = lazy_device::zeros({3});
  staging->to_device(values.narrow(0, 0, 3), other);
  values.fill_(8);
  auto back = torch::zeros({3});
  staging->to_host(other, back);
  lazy_device::synchronize();
  EXPECT_EQ(*first, (std::vector<float>{1, 2, 3, 4, 5}));
  EXPECT_EQ(list(other), (std::vector<float>{9, 9, 9}));
  EXPECT_EQ(list(back), (std::vector<float>{9, 9, 9}));
}

TEST_F(Staging, ACopyToTheDeviceDoesNotWaitForThePassesBeforeIt) {
  enqueue_write(1);
  staging->to_device(numbers({4}), lazy_device::zeros({4})); // a part for each buffer
  EXPECT_EQ(list(there), all(0)) << "the pass has run";
  staging->begin_to_device(numbers({5}), there);
  lazy_device::synchronize();
  EXPECT_EQ(list(there), (std::vector<float>{1, 2, 3, 4, 5}));
}

// -- memory that is freed -------------------------------------------------------------------------

/// A tensor that sets `freed` when its memory is freed.
torch::Tensor noticed(std::vector<float>& memory, bool& freed) {
  return torch::from_blob(memory.data(), {static_cast<std::int64_t>(memory.size())},
                          [&freed](void*) { freed = true; });
}

TEST_F(Staging, ABegunCopyKeepsItsSourceUntilItIsWaitedFor) {
  std::vector<float> memory(5, 3);
  bool freed = false;
  staging->begin_to_device(noticed(memory, freed), there);
  EXPECT_FALSE(freed);
  EXPECT_EQ(list(there), all(0)) << "it waits without need";
  staging->wait();
  EXPECT_TRUE(freed);
  EXPECT_EQ(list(there), all(3));
}

TEST_F(Staging, ASecondBegunCopyEndsTheFirst) {
  std::vector<float> memory(5, 3);
  bool freed = false;
  staging->begin_to_device(noticed(memory, freed), there);
  auto other = lazy_device::zeros({5});
  staging->begin_to_device(numbers({5}), other);
  EXPECT_TRUE(freed);
  EXPECT_EQ(list(there), all(3));
}

TEST_F(Staging, DestroyedWhileCopiesAreInFlightItWaitsForThem) {
  std::vector<float> memory(5, 3);
  bool freed = false;
  staging->begin_to_device(noticed(memory, freed), there);
  staging.reset();
  EXPECT_TRUE(freed);
  EXPECT_EQ(list(there), all(3));

  staging.emplace(lazy_device::device(), two_floats);
  staging->to_device(numbers({5}), there);
  staging.reset(); // and with it the buffers
  EXPECT_EQ(list(there), (std::vector<float>{1, 2, 3, 4, 5}));
}

TEST_F(Staging, ATensorOfTheDeviceMayBeDestroyedWhileItIsWritten) {
  auto before = lazy_device::copies_in_freed_memory();
  (void)staging->to_device(numbers({5}));
  staging->begin_to_device(numbers({5}), lazy_device::zeros({5}));
  staging->wait();
  lazy_device::synchronize();
  EXPECT_EQ(lazy_device::copies_in_freed_memory(), before);
}

// -- on a GPU -------------------------------------------------------------------------------------

TEST(Cuda, StagedCopiesHaveTheValuesOfBlockingOnes) {
  if (!torch::cuda::is_available())
    GTEST_SKIP() << "this machine, or this LibTorch, has no CUDA";
  torch::Device gpu{torch::kCUDA, 0};
  for (std::size_t buffer : {std::size_t{64}, host_staging::default_buffer}) {
    host_staging staging{gpu, buffer};
    auto values = torch::randn({4'000'003});
    for (int i = 0; i < 3; ++i) {
      auto there = staging.to_device(buffer == 64 ? values.narrow(0, 0, 1003) : values);
      auto expected = there.to(torch::kCPU).mul(2);
      for (int pass = 0; pass < 50; ++pass)
        there.mul_(2).div_(2);
      EXPECT_TRUE(staging.to_host(there.mul_(2)).equal(expected)) << buffer;
      staging.mark();
      auto after = there.clone().mul_(3);
      auto back = torch::empty(there.sizes());
      staging.to_host_since_mark(there, back);
      EXPECT_TRUE(back.equal(expected)) << buffer;
    }
  }
}

TEST(Cuda, ABegunCopyIsOrderedWithThePassesBesideIt) {
  if (!torch::cuda::is_available())
    GTEST_SKIP() << "this machine, or this LibTorch, has no CUDA";
  torch::Device gpu{torch::kCUDA, 0};
  host_staging staging{gpu};
  auto source = host_memory_for(gpu, {4'000'000}, torch::kFloat32);
  EXPECT_TRUE(source.is_pinned());
  auto there = torch::zeros({4'000'000}, torch::TensorOptions{}.device(gpu));
  auto sum = torch::zeros({}, torch::TensorOptions{}.dtype(torch::kFloat64).device(gpu));
  double expected = 0;
  for (int value = 1; value <= 10; ++value) {
    staging.wait(); // for the copy of the previous value
    source.fill_(value);
    staging.begin_to_device(source, there);
    sum.add_(there.sum(torch::kFloat64));
    expected += 4e6 * value;
  }
  EXPECT_EQ(sum.item<double>(), expected);
}

} // namespace
} // namespace waggle
