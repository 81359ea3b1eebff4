#pragma once

#include <cstdint>
#include <iosfwd>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/core/bytes.hpp"
#include "runtime/training/state_table.hpp"
#include "runtime/training/training_state.hpp"

namespace waggle {

/// One float32 tensor: its name and shape, and its values, little-endian.
struct named_values {
  std::string name;
  std::vector<std::uint64_t> shape;
  byte_span values;
};

/// A file in the format safetensors: the length of the header (8 bytes, little-endian), the header
/// (JSON: type, shape and place of each tensor, sorted by name, without gaps), the values. The
/// length of the header is a multiple of 8. `epoch` becomes a text of its metadata.
/// https://github.com/huggingface/safetensors
std::string safetensors_file(std::vector<named_values> tensors, epoch_id epoch);

inline bool is_safetensors(std::string_view file) {
  return file.ends_with(".safetensors");
}

struct value_counts {
  std::uint64_t floats = 0;
  std::uint64_t others = 0; // integers, say: no optimizer steps with them
};
constexpr std::uint64_t safetensors_header_max = 16U << 20U; // 100,000 tensors need 12 MB
/// What a file of `bytes` bytes in this format holds, from its header alone. Fails with
/// ec::malformed: the header is longer than `safetensors_header_max`, is no JSON, or announces more
/// than the file has.
result<value_counts> count_values(std::istream& file, std::uint64_t bytes);

/// The parameters and buffers of a checkpoint, of whatever model. They point into its image.
struct checkpoint_weights {
  epoch_id epoch;
  state_table table;
  std::vector<named_values> tensors;
};
/// Fails as decode_state and state_table::check do.
result<checkpoint_weights> weights_in(byte_span image);

} // namespace waggle
