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

/// Draws random windows of `data`; all positions are equally likely. The sequence depends on
/// `random`, the data and the length of a window only, and can be continued from any point of it.
class window_sampler {
public:
  window_sampler(std::shared_ptr<const byte_data> data, std::size_t window, random_source random);

  /// Returns the first byte of the next window. A window lies within one piece.
  const std::byte* next();
  [[nodiscard]] std::size_t window() const { return window_; }
  /// The number of windows drawn so far.
  [[nodiscard]] std::uint64_t drawn() const { return drawn_; }
  /// Continues after so many windows. Repeats at most one block of draws.
  void continue_after(std::uint64_t drawn);
  /// Equal for samplers with the same sequence. Two others differ with high probability.
  [[nodiscard]] std::uint64_t fingerprint() const { return fingerprint_; }

private:
  /// Each block of so many windows has a source of its own, so that the sequence can be continued
  /// late in it without drawing all windows before.
  static constexpr std::uint64_t block = 1ULL << 20U;
  void begin_block(std::uint64_t number);

  std::shared_ptr<const byte_data> data_;
  std::size_t window_;
  random_source first_; // as it was given: the source of the first block
  random_source random_;
  std::uint64_t drawn_ = 0;
  std::uint64_t fingerprint_ = 0;
  std::vector<std::uint64_t> ends_; // cumulative number of positions, by piece
};

} // namespace waggle
