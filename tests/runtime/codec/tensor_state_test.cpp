#include "runtime/codec/tensor_state.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace waggle {
namespace {

using ::testing::HasSubstr;

using bytes = std::vector<std::byte>;

std::shared_ptr<bytes> copy(byte_span from) {
  return std::make_shared<bytes>(from.begin(), from.end());
}

struct TensorState : ::testing::Test {
  std::vector<float> f{1, 2, 3};
  std::vector<std::uint16_t> h{4, 5};
  averager_state state{"any\n bytes",
                       {{"f", tensor_type::float32, {3}, f.data()},
                        {"none", tensor_type::float64, {0, 7}, nullptr},
                        {"h", tensor_type::bfloat16, {2, 1}, h.data()}}};
};

TEST_F(TensorState, IsReadAsItWasWritten) {
  auto made = encode_state(state);
  auto read = decode_state(copy(made->view()));
  EXPECT_EQ(read->metadata, state.metadata);
  ASSERT_EQ(read->tensors.size(), 3U);
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(read->tensors[i].name, state.tensors[i].name);
    EXPECT_EQ(read->tensors[i].type, state.tensors[i].type);
    EXPECT_EQ(read->tensors[i].shape, state.tensors[i].shape);
  }
  EXPECT_EQ(static_cast<const float*>(read->tensors[0].values)[2], 3);
  EXPECT_EQ(read->tensors[1].values, nullptr);
  EXPECT_EQ(static_cast<const std::uint16_t*>(read->tensors[2].values)[1], 5);
}

TEST_F(TensorState, BytesOfOthersAreRefusedUnlessTheyAreOne) {
  auto made = *encode_state(state);
  for (std::size_t size = 0; size < made.size; ++size)
    EXPECT_FALSE(decode_state(copy(made.view().first(size)))) << size;
  auto longer = copy(made.view());
  longer->resize(made.size + 8);
  EXPECT_EQ(decode_state(longer).error().code, ec::malformed);
  for (std::size_t i = 0; i < made.size; ++i) { // no change makes it read what is not there
    auto changed = copy(made.view());
    (*changed)[i] ^= std::byte{0xff};
    auto read = decode_state(changed);
    for (const auto& tensor : read ? read->tensors : std::vector<averaged_tensor>{})
      if (tensor.values != nullptr) {
        const auto* end =
          static_cast<const std::byte*>(tensor.values) + tensor.elements() * size_of(tensor.type);
        EXPECT_LE(end, changed->data() + changed->size());
      }
  }
}

TEST_F(TensorState, WhatCannotBeGivenIsNamed) {
  auto why = [&] { return encode_state(state).error().detail; };
  state.tensors[2].name = "f";
  EXPECT_EQ(why(), "two tensors have the name 'f'");
  state.tensors[2].name = "";
  EXPECT_THAT(why(), HasSubstr("1 to 1024"));
  state.tensors[2] = {"h", tensor_type::float32, {1}, nullptr};
  EXPECT_EQ(why(), "tensor 'h' has no values");
  state.metadata.resize(65537);
  EXPECT_EQ(why(), "the metadata have 65537 bytes: they may have 65536");
}

} // namespace
} // namespace waggle
