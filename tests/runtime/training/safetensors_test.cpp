#include "runtime/training/safetensors.hpp"

#include <cstring>

#include <gtest/gtest.h>

#include "runtime/core/byte_io.hpp"
#include "tests/support/states.hpp"

namespace waggle {

namespace {

// The layout of https://github.com/huggingface/safetensors#format.
TEST(Safetensors, AreAHeaderSortedByNameAndTheValuesWithoutGaps) {
  const std::vector<float> two{1, -2};
  const std::vector<float> one{0.5F};
  auto bytes = [](const std::vector<float>& v) { return std::as_bytes(std::span{v}); };
  auto file = safetensors_file({{"w", {2, 1}, bytes(two)}, {"a \"quoted\" name", {}, bytes(one)}},
                               epoch_id{12});
  std::string header = R"({"__metadata__":{"format":"pt","epoch":"12"},)"
                       R"("a \"quoted\" name":{"dtype":"F32","shape":[],"data_offsets":[0,4]},)"
                       R"("w":{"dtype":"F32","shape":[2,1],"data_offsets":[4,12]}})";
  header.resize((header.size() + 7) / 8 * 8, ' ');
  byte_reader in{file};
  ASSERT_EQ(in.get<std::uint64_t>(), header.size());
  EXPECT_EQ(in.get_raw(header.size()), header);
  std::vector<float> values(3);
  auto data = in.get_raw(12);
  ASSERT_TRUE(in.ok());
  EXPECT_EQ(in.left(), 0U);
  std::memcpy(values.data(), data.data(), data.size());
  EXPECT_EQ(values, (std::vector<float>{0.5F, 1, -2}));
}

TEST(Safetensors, HoldTheParametersAndBuffersOfAState) {
  state_table table{{{"w", {2}, state_tensor::kind::parameter},
                     {"exp_avg/w", {2}, state_tensor::kind::statistic},
                     {"norm.running_mean", {1}, state_tensor::kind::buffer}}};
  auto learner = table.header(digest{}, 3);
  const std::vector<float> values{1, 2, 3, 4, 5};
  learner += as_string_view(std::as_bytes(std::span{values}));
  auto image = testing::encode_state({epoch_id{7}, {}, {}, {}, as_byte_span(learner)});
  auto weights = weights_in(image.view());
  ASSERT_TRUE(weights);
  EXPECT_EQ(weights->epoch, epoch_id{7});
  EXPECT_EQ(weights->table.tensors(), table.tensors());
  EXPECT_FALSE(weights_in(image.view().first(image.view().size() - 4)));
  const auto& found = weights->tensors;
  ASSERT_EQ(found.size(), 2U);
  EXPECT_EQ(found[0].name, "w");
  EXPECT_EQ(found[1].name, "norm.running_mean");
  float mean = 0;
  ASSERT_EQ(found[1].values.size(), sizeof mean);
  std::memcpy(&mean, found[1].values.data(), sizeof mean);
  EXPECT_EQ(mean, 5);
}

} // namespace

} // namespace waggle
