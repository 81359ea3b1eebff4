#include "trainer/batch_size.hpp"

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace waggle {
namespace {

torch::Tensor rows(std::int64_t n) {
  return torch::zeros({n, 2});
}

TEST(BatchSize, IsTheLengthOfTheFirstTensor) {
  EXPECT_EQ(batch_size_of(rows(5)), 5U);
  EXPECT_EQ(batch_size_of(torch::data::Example<>{rows(4), rows(3)}), 4U);
  EXPECT_EQ(batch_size_of(std::vector{rows(6), rows(7)}), 6U);
  EXPECT_EQ(batch_size_of(std::pair{std::string{"images"}, rows(8)}), 8U);
  EXPECT_EQ(batch_size_of(std::map<std::string, torch::Tensor>{{"x", rows(9)}}), 9U);
  EXPECT_EQ(batch_size_of(std::tuple{3, std::vector<torch::Tensor>{}, rows(2)}), 2U);
  std::vector<torch::data::Example<>> not_stacked{{rows(1), rows(1)}, {rows(1), rows(1)}};
  EXPECT_EQ(batch_size_of(not_stacked), 2U) << "two images of one channel";
  EXPECT_EQ(batch_size_of(std::pair{std::filesystem::path{"/a/b"}, rows(4)}), 4U);
  EXPECT_EQ(batch_size_of(std::vector{torch::zeros({}), rows(3)}), 3U) << "a scalar has no samples";
  EXPECT_EQ(batch_size_of(std::vector{torch::Tensor{}, rows(3)}), 3U);
}

TEST(BatchSize, OfNothingIsRefused) {
  EXPECT_THROW(batch_size_of(torch::zeros({})), std::invalid_argument);
  EXPECT_THROW(batch_size_of(rows(0)), std::invalid_argument);
  EXPECT_THROW(batch_size_of(std::vector<torch::Tensor>{}), std::invalid_argument);
  EXPECT_THROW(batch_size_of(std::string{"no tensor"}), std::invalid_argument);
}

} // namespace
} // namespace waggle
