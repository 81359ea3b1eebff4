#pragma once

#include <cstdint>

#include "runtime/core/bytes.hpp"
#include "runtime/core/result.hpp"

namespace waggle {

/// The header of a file in MNIST's IDX format: two zeros, the type of a value, the number of
/// dimensions, and the size of each, big-endian. Only unsigned bytes (type 8) occur in sets of
/// images. http://yann.lecun.com/exdb/mnist
struct idx_header {
  std::uint32_t items = 0;
  std::uint32_t rows = 1; // of an image; a label has one
  std::uint32_t columns = 1;

  [[nodiscard]] std::uint64_t item_bytes() const { return std::uint64_t{rows} * columns; }
  [[nodiscard]] std::uint64_t value_bytes() const { return items * item_bytes(); }
};

constexpr std::size_t idx_labels_header = 8;  // bytes
constexpr std::size_t idx_images_header = 16; // bytes
/// A larger image would not be one.
constexpr std::uint32_t image_side_max = 4096;
constexpr std::uint32_t images_max = 1U << 28U;

/// The header at the beginning of a file of labels (one dimension) or images (three). Fails with
/// ec::malformed and half a sentence that follows the name of the file.
result<idx_header> parse_idx_labels(byte_span begin);
result<idx_header> parse_idx_images(byte_span begin);

/// A record of CIFAR-10's binary files: the label, then 32 × 32 values of red, green, and blue.
constexpr std::size_t cifar_side = 32;
constexpr std::size_t cifar_record = 1 + 3 * cifar_side * cifar_side;

/// Whether all labels, `stride` bytes apart, are below `classes`. Fails with ec::malformed and half
/// a sentence that follows the name of the file. `first`: the number of the first one.
status check_labels(byte_span labels, std::size_t stride, std::int64_t classes,
                    std::uint64_t first = 0);

} // namespace waggle
