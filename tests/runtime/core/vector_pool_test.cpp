#include "runtime/core/vector_pool.hpp"

#include <thread>

#include <gtest/gtest.h>

namespace waggle {
namespace {

TEST(VectorPool, GivesAReturnedVectorOutAgain) {
  auto pool = vector_pool::make(2);
  auto first = pool->take(1000);
  EXPECT_EQ(first->size(), 1000u);
  const auto* memory = first->data();
  first.reset();
  EXPECT_EQ(pool->take(1000)->data(), memory);
}

TEST(VectorPool, NeverSharesAVectorInUse) {
  auto pool = vector_pool::make(2);
  auto first = pool->take(10);
  EXPECT_NE(first->data(), pool->take(10)->data());
}

TEST(VectorPool, AnotherSizeIsAnotherVector) {
  auto pool = vector_pool::make(2);
  pool->take(10).reset();
  EXPECT_EQ(pool->take(20)->size(), 20u);
}

TEST(VectorPool, KeepsTheLastOnesReturned) {
  auto pool = vector_pool::make(1);
  auto first = pool->take(10);
  auto second = pool->take(10);
  const auto* memory = second->data();
  first.reset();
  second.reset();
  EXPECT_EQ(pool->take(10)->data(), memory);
}

TEST(VectorPool, VectorsOutliveThePool) {
  auto pool = vector_pool::make(1);
  auto vector = pool->take(10);
  pool.reset();
  vector->at(9) = 1;
  EXPECT_EQ(vector->at(9), 1.0F);
}

TEST(VectorPool, ServesSeveralThreads) {
  auto pool = vector_pool::make(4);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([pool, t] {
      for (int i = 0; i < 500; ++i) {
        auto mine = pool->take(64);
        std::fill(mine->begin(), mine->end(), static_cast<float>(t));
        EXPECT_EQ(std::count(mine->begin(), mine->end(), static_cast<float>(t)), 64);
      }
    });
  for (auto& thread : threads)
    thread.join();
}

TEST(VectorPool, KnowsHowManyVectorsAreOut) {
  auto pool = vector_pool::make(1);
  auto a = pool->take(4);
  auto b = pool->take(5);
  EXPECT_EQ(pool->lent(), 2U);
  a.reset();
  EXPECT_EQ(pool->lent(), 1U);
  b.reset();
  EXPECT_EQ(pool->lent(), 0U);
}

} // namespace
} // namespace waggle
