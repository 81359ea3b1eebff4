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

/// Bytes to learn from, in one or several pieces. Immutable.
class byte_data {
public:
  virtual ~byte_data() = default;
  [[nodiscard]] virtual const std::vector<byte_span>& pieces() const = 0;
};

/// A text file by memory map, or a folder: its regular files in ascending order of their names,
/// those too short left out. `window`: a piece has at least that many bytes. Fails with
/// ec::bad_config.
result<std::shared_ptr<const byte_data>> open_text(const std::filesystem::path& path,
                                                   std::size_t window);

/// 1 MiB from a fixed Markov chain over 64 letters, the same everywhere: each letter is followed by
/// one of four, so that there is something to learn and a floor of about 1.2 nats.
std::shared_ptr<const byte_data> make_synthetic_text();

/// Random windows of `data`, all positions equally likely.
class window_sampler {
public:
  window_sampler(std::shared_ptr<const byte_data> data, std::size_t window, random_source random);

  /// The next window's first byte; it lies within one piece.
  const std::byte* next();
  [[nodiscard]] std::size_t window() const { return window_; }

private:
  std::shared_ptr<const byte_data> data_;
  std::size_t window_;
  random_source random_;
  std::vector<std::uint64_t> ends_; // positions up to the end of each piece
};

} // namespace waggle
