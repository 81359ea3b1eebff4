#include "runtime/training/safetensors.hpp"

#include <cstring>
#include <optional>
#include <sstream>

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

/// What is counted in a file of this header, with `values` bytes behind it; `length`: what it says
/// of its header's length, if that is not true.
result<value_counts> counted(std::string header, std::size_t values,
                             std::optional<std::uint64_t> length = {}) {
  auto bytes =
    byte_writer{}.put(length.value_or(header.size())).take() + header + std::string(values, '\0');
  std::istringstream file{bytes};
  return count_values(file, bytes.size());
}

TEST(SafetensorsHeader, CountsFloatsAndOtherValues) {
  auto found = counted(R"({"__metadata__":{"format":"pt"},)"
                       R"("w":{"dtype":"BF16","shape":[2,3],"data_offsets":[0,12]},)"
                       R"("scalar":{"dtype":"F32","shape":[],"data_offsets":[12,16]},)"
                       R"("none":{"dtype":"F32","shape":[0,7],"data_offsets":[16,16]},)"
                       R"("ids":{"dtype":"I64","shape":[2],"data_offsets":[16,32]}})",
                       32);
  EXPECT_EQ(found->floats, 7U);
  EXPECT_EQ(found->others, 2U);
}

TEST(SafetensorsHeader, IsThatOfFilesThatWeWrite) {
  const std::vector<float> values{1, 2, 3};
  auto bytes = safetensors_file({{"w", {3}, std::as_bytes(std::span{values})}}, epoch_id{1});
  std::istringstream file{bytes};
  EXPECT_EQ(count_values(file, bytes.size())->floats, 3U);
}

TEST(SafetensorsHeader, IsRefusedIfItIsTooLongTruncatedOrNoJson) {
  const std::string good = R"({"w":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})";
  struct bad {
    std::string header;
    std::size_t values;
    std::optional<std::uint64_t> length;
    const char* why;
  };
  for (const auto& each : std::vector<bad>{
         {good, 8, safetensors_header_max + 1, "at most 16777216 are read"},
         {good, 8, ~std::uint64_t{0}, "at most 16777216 are read"},
         {good, 8, 10'000, "is truncated within its header"},
         {good, 7, {}, "tensor \"w\" ends behind it"},
         {good.substr(1), 8, {}, "no JSON"},
         {"[1]", 8, {}, "no JSON"},
         {std::string(1'000'000, '['), 8, {}, "no JSON"},
         {R"({"w":{"shape":[2],"data_offsets":[0,8]}})", 8, {}, "tensor \"w\" is"},
         {R"({"w":{"dtype":"F32","shape":[-2],"data_offsets":[0,8]}})", 8, {}, "tensor \"w\" is"},
         {R"({"w":{"dtype":"F32","shape":[2],"data_offsets":[8,0]}})", 8, {}, "tensor \"w\" is"},
         {R"({"w":{"dtype":"F32","shape":[2],"data_offsets":[0]}})", 8, {}, "tensor \"w\" is"},
         {R"({"w":7})", 8, {}, "tensor \"w\" is"},
         // More values than bits, whose number would not fit.
         {R"({"w":{"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,8]}})",
          8,
          {},
          "tensor \"w\" is"}}) {
    auto found = counted(each.header, each.values, each.length);
    ASSERT_FALSE(found) << each.header.substr(0, 100);
    EXPECT_EQ(found.error().code, ec::malformed);
    EXPECT_NE(found.error().detail.find(each.why), std::string::npos) << found.error().detail;
  }
  std::istringstream empty;
  EXPECT_FALSE(count_values(empty, 0));
}

} // namespace

} // namespace waggle
