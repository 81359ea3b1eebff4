#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/codec/codec_choice.hpp"

namespace waggle {

enum class tensor_type : std::uint8_t { float32, float64, float16, bfloat16 };
std::string_view to_string(tensor_type type);
std::size_t size_of(tensor_type type); // of a value. Bytes

/// An array of the caller's, one value after another, which is averaged where it is.
struct averaged_tensor {
  std::string name; // 1 to 1024 bytes; no two have the same
  tensor_type type = tensor_type::float32;
  std::vector<std::uint64_t> shape;
  void* values = nullptr; // null: of an auxiliary, which has none

  [[nodiscard]] std::uint64_t elements() const;
};

/// A list of tensors as the one vector of float32 that a round averages. A tensor travels in its
/// own type unless a lossy codec is chosen for it, and is rounded to that type once. A float64
/// takes three values (codec_id:: mean64): it keeps its 53 bits, to an absolute error of 1e-45, and
/// must be below 3.4e38. Not thread-safe.
class tensor_vector {
public:
  /// Fails with ec::bad_config or wrong_shape, and the name of the tensor.
  static result<tensor_vector> make(std::vector<averaged_tensor> all, const codec_choice& choice,
                                    bool auxiliary = false);

  /// In the caller's order.
  [[nodiscard]] const std::vector<averaged_tensor>& all() const { return all_; }
  /// The vector, and how it travels.
  [[nodiscard]] const codec_plan& codecs() const { return codecs_; }
  [[nodiscard]] std::uint64_t elements() const { return elements_of(codecs_); }
  /// What must be equal on all peers: a line for each tensor, in the caller's order.
  [[nodiscard]] std::string description() const;

  /// Copies all tensors to the vector. Fails with ec::non_finite and the name of the first tensor
  /// with a float64 that does not fit. REQUIRES: out has `elements()` values.
  [[nodiscard]] status read(std::span<float> out) const;
  /// Writes `sent` + alpha · (`mean` − `sent`) to the tensors.
  void write(std::span<const float> mean, std::span<const float> sent, double alpha) const;
  /// "tensor 'w' …" of the first one with a value that is not finite; empty: there is none.
  [[nodiscard]] std::string not_finite() const;

private:
  struct place {
    std::size_t tensor; // its index
    std::uint64_t count;
    bool exact; // three values for each of it
  };

  explicit tensor_vector(std::vector<averaged_tensor> all) : all_(std::move(all)) {}

  std::vector<averaged_tensor> all_;
  std::vector<place> places_; // in the order of the vector
  codec_plan codecs_;
};

/// The first line in which two descriptions differ, as a sentence about "here" and "there"; empty:
/// none does. The other one comes from a peer, and may be cut short.
std::string first_difference(std::string_view here, std::string_view there);

} // namespace waggle
