#pragma once

#include <cmath>
#include <cstring>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "runtime/training/state_table.hpp"
#include "runtime/training/training_state.hpp"
#include "tests/processes/peer.hpp"
#include "tests/support/states.hpp"

namespace waggle::testing {

/// A checkpoint of a peer.
struct checkpoint {
  std::uint64_t epoch = 0;
  std::string image;
  std::string learner; // of the image, what the history of the run does not change
  std::vector<float> parameters;
  std::size_t statistics = 0; // tensors of the optimizer
};

inline checkpoint read_checkpoint(const std::filesystem::path& file) {
  checkpoint out;
  out.image = content_of(file);
  auto state = decode_state(std::as_bytes(std::span{out.image}));
  EXPECT_TRUE(state) << file;
  if (!state)
    return out;
  out.epoch = state->epoch.value();
  out.learner.assign(reinterpret_cast<const char*>(state->learner.data()), state->learner.size());
  auto table = read_state_table(state->learner);
  EXPECT_TRUE(table) << file;
  if (!table)
    return out;
  auto values = testing::parameters_in(*table, state->learner);
  out.parameters.resize(values.size() / sizeof(float));
  std::memcpy(out.parameters.data(), values.data(), values.size());
  for (const auto& tensor : table->tensors())
    out.statistics +=
      tensor.what == state_tensor::kind::statistic || tensor.what == state_tensor::kind::square ? 1
                                                                                                : 0;
  return out;
}

/// The newest checkpoint of a peer. Read it when the peer has ended: a running one deletes old
/// files.
inline checkpoint last_checkpoint(const std::filesystem::path& data_dir) {
  std::map<std::uint64_t, std::filesystem::path> by_serial;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator{data_dir / "checkpoints", error}) {
    auto name = entry.path().filename().string();
    if (name.starts_with("checkpoint-") && name.ends_with(".wgl"))
      by_serial[std::strtoull(name.c_str() + std::strlen("checkpoint-"), nullptr, 10)] =
        entry.path();
  }
  EXPECT_FALSE(by_serial.empty()) << data_dir;
  return by_serial.empty() ? checkpoint{} : read_checkpoint(by_serial.rbegin()->second);
}

/// |a - b| / |a|
inline double relative_distance(const std::vector<float>& a, const std::vector<float>& b) {
  EXPECT_EQ(a.size(), b.size());
  double apart = 0;
  double length = 0;
  for (std::size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
    auto difference = static_cast<double>(a[i]) - static_cast<double>(b[i]);
    apart += difference * difference;
    length += static_cast<double>(a[i]) * static_cast<double>(a[i]);
  }
  EXPECT_GT(length, 0);
  return std::sqrt(apart / length);
}

} // namespace waggle::testing
