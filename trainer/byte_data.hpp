#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "runtime/core/bytes.hpp"
#include "runtime/core/random.hpp"
#include "runtime/core/result.hpp"

namespace waggle {

/// The bytes of the training data, in one or several pieces. Immutable.
class byte_data {
public:
  virtual ~byte_data() = default;
  [[nodiscard]] virtual const std::vector<byte_span>& pieces() const = 0;
};

/// Maps a text file into memory, or all regular files of a folder in ascending order of their
/// names. Skips files that are shorter than `window` bytes, so each piece holds a whole window.
/// Fails with ec::bad_config.
result<std::shared_ptr<const byte_data>> open_text(const std::filesystem::path& path,
                                                   std::size_t window);

/// 1 MiB from a fixed Markov chain over 64 letters, equal on every machine. Each letter is followed
/// by one of four letters, so a model can learn it; the loss cannot fall below about 1.2 nats.
std::shared_ptr<const byte_data> make_synthetic_text();

/// Draws random windows of `data`; all positions are equally likely.
class window_sampler {
public:
  window_sampler(std::shared_ptr<const byte_data> data, std::size_t window, random_source random);

  /// Returns the first byte of the next window. A window lies within one piece.
  const std::byte* next();
  [[nodiscard]] std::size_t window() const { return window_; }

private:
  std::shared_ptr<const byte_data> data_;
  std::size_t window_;
  random_source random_;
  std::vector<std::uint64_t> ends_; // cumulative number of positions, by piece
};

} // namespace waggle
