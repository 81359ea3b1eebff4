#include "runtime/allreduce/result_assembly.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace waggle {
namespace {

using ::testing::ElementsAre;

/// Four parts of two values; parts 0 and 1 are reduced by member 0, the others by member 1.
class ResultAssembly : public ::testing::Test {
protected:
  static round_plan plan() {
    round_plan out;
    out.elements = 8;
    out.part_elements = 2;
    out.members.resize(2);
    out.shares = {4, 4};
    out.codecs = {{8, codec_id::none}};
    return out;
  }

  static void fill(float* at, float value) { std::fill_n(at, 2, value); }
  static void fill(const std::shared_ptr<std::byte>& at, float value) {
    fill(reinterpret_cast<float*>(at.get()), value);
  }
  /// Puts the part as if its place could not be lent.
  void put(std::uint32_t part, float value) {
    auto memory = result.memory_for(part);
    fill(memory.get(), value);
    result.put(part, memory);
  }
  void put_sum(std::uint32_t part, float value) {
    auto memory = result.memory_for_sum(part);
    fill(memory.get(), value);
    result.put(part, memory);
  }

  part_table parts{plan()};
  std::shared_ptr<float_vector> vector = std::make_shared<float_vector>(8, -1.0F);
  result_assembly result{parts, 0, vector};
};

TEST_F(ResultAssembly, PartsComeTogetherInTheirPlaces) {
  put_sum(0, 0);
  put_sum(1, 1);
  put(2, 2);
  fill(result.lend(3), 3);
  result.returned(3);
  result.put(3, result.read_in_place(3));
  auto whole = result.whole();
  EXPECT_EQ(whole->data(), vector->data()) << "nothing needed to be copied";
  EXPECT_THAT(*whole, ElementsAre(0, 0, 1, 1, 2, 2, 3, 3));
}

TEST_F(ResultAssembly, AMemberThatStillWritesCannotChangeTheResult) {
  auto abandoned = result.lend(3);
  EXPECT_EQ(result.lend(3), nullptr) << "one writer a place";
  for (std::uint32_t part : {0, 1, 2})
    put(part, 5);
  put(3, 7); // from its new owner
  auto whole = result.whole();
  fill(abandoned, 666);
  EXPECT_THAT(*whole, ElementsAre(5, 5, 5, 5, 5, 5, 7, 7));
}

TEST_F(ResultAssembly, WhatALinkWroteInVainDoesNotReplaceThePart) {
  auto late = result.lend(3);
  for (std::uint32_t part : {0, 1, 2, 3})
    put(part, 5);
  fill(late, 666);
  result.returned(3); // over other contributors, so not put
  EXPECT_THAT(*result.whole(), ElementsAre(5, 5, 5, 5, 5, 5, 5, 5));
}

TEST_F(ResultAssembly, ASecondSumLeavesTheFirstAloneWhichMayBeBeingSent) {
  auto first = result.memory_for_sum(0);
  fill(first.get(), 1);
  result.put(0, first);
  result.start_over();
  EXPECT_EQ(result.lend(0), nullptr);
  for (std::uint32_t part : {1, 2, 3})
    put(part, 4);
  put_sum(0, 2);
  EXPECT_EQ(*first, 1);
  EXPECT_THAT(*result.whole(), ElementsAre(2, 2, 4, 4, 4, 4, 4, 4));
}

TEST_F(ResultAssembly, WhatIsSummedForALostMemberDoesNotTouchItsResult) {
  for (std::uint32_t part : {0, 1, 2, 3})
    put(part, 5);
  auto again = result.memory_for_sum(2); // for members that have not received it
  fill(again.get(), 666);                // not put: the part is there already
  EXPECT_THAT(*result.whole(), ElementsAre(5, 5, 5, 5, 5, 5, 5, 5));
}

} // namespace
} // namespace waggle
