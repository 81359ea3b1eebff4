#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "runtime/core/bytes.hpp"
#include "runtime/core/random.hpp"
#include "runtime/core/result.hpp"

namespace waggle {

/// The bytes of the training data, in one or several pieces, whose sizes do not change. Not
/// thread-safe.
class byte_data {
public:
  virtual ~byte_data() = default;
  [[nodiscard]] virtual const std::vector<std::uint64_t>& sizes() const = 0;
  /// Copies the bytes [at, at + out.size()) of a piece. Fails with ec::io_error and a sentence for
  /// the operator, e.g. if a file has become shorter. REQUIRES: they lie within the piece.
  virtual status read(std::size_t piece, std::uint64_t at, std::span<std::byte> out) const = 0;
};

/// The files that list_data_files finds, one piece each, so each piece holds a whole window. They
/// are read when bytes of them are needed, and not mapped: a mapped file that somebody makes
/// shorter ends the process. Fails with ec::bad_config.
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

  /// Where a window begins. It lies within one piece.
  struct place {
    std::size_t piece = 0;
    std::uint64_t at = 0;
    friend bool operator==(const place&, const place&) = default;
  };
  place next();
  /// Copies the next window (`window()` bytes). Fails with ec::io_error, as byte_data::read.
  status read_next(std::span<std::byte> out);
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
