#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "runtime/core/bytes.hpp"
#include "runtime/core/random.hpp"
#include "runtime/core/result.hpp"

namespace waggle {

/// What the items of a data set are.
struct sample_shape {
  enum class kind : std::uint8_t { bytes, tokens, images };
  kind what = kind::bytes;
  /// Of an item: 1 of a text; 2 or 4 of a token, little-endian; of an image, its label and then its
  /// values, channel by channel and row by row.
  std::size_t item_bytes = 1;
  std::int64_t channels = 0; // of images, as rows and columns
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  std::int64_t classes = 256; // what a model predicts: bytes, tokens or labels below this

  friend bool operator==(const sample_shape&, const sample_shape&) = default;
};

/// Where a window begins. It lies within one piece.
struct window_place {
  std::size_t piece = 0;
  std::uint64_t at = 0;
  friend bool operator==(const window_place&, const window_place&) = default;
};

/// The items of a data set, in one or several pieces, whose sizes do not change. Not thread-safe.
class sample_data {
public:
  virtual ~sample_data() = default;
  [[nodiscard]] const sample_shape& shape() const { return shape_; }
  /// The number of items of each piece.
  [[nodiscard]] const std::vector<std::uint64_t>& sizes() const { return sizes_; }
  /// Copies the items from `at` on that fill `out`. Fails with ec::io_error and a sentence for the
  /// operator, e.g. if a file has become shorter. REQUIRES: they lie within the piece, and `out` is
  /// as long as a whole number of items.
  virtual status read(std::size_t piece, std::uint64_t at, std::span<std::byte> out) const = 0;
  /// Whether what is drawn by number is not a window but a block, which has any number of windows:
  /// see line_blocks.hpp.
  [[nodiscard]] virtual bool in_blocks() const { return false; }
  /// The windows of `window` items at these places, one after another; of blocks, all in them.
  /// Fails with ec::io_error, as `read`. Of lines of JSON without a text, the first failure goes to
  /// `left_out`, unless that is null, and the others are returned. REQUIRES: each place lies within
  /// its piece.
  [[nodiscard]] virtual result<std::vector<std::byte>>
  windows(std::size_t window, std::span<const window_place> places,
          std::string* left_out = nullptr) const;

protected:
  sample_data(const sample_shape& shape, std::vector<std::uint64_t> sizes)
    : shape_(shape), sizes_(std::move(sizes)) {}

private:
  const sample_shape shape_;
  const std::vector<std::uint64_t> sizes_;
};

/// The files that list_data_files finds, one piece each, so each piece holds a whole window. Fails
/// with ec::bad_config. `option`: that names the path, for sentences.
result<std::shared_ptr<const sample_data>> open_text(const std::filesystem::path& path,
                                                     std::size_t window,
                                                     const std::string& option = "--data");

/// 1 MiB from a fixed Markov chain over 64 letters, equal on every machine. Each letter is followed
/// by one of four letters, so a model can learn it; the loss cannot fall below about 1.2 nats.
std::shared_ptr<const sample_data> make_synthetic_text();

/// Draws random windows of `data`; all positions are equally likely. The sequence depends on
/// `random`, the data and the length of a window only, and can be continued from any point of it.
class window_sampler {
public:
  /// `window`: items.
  window_sampler(std::shared_ptr<const sample_data> data, std::size_t window, random_source random);

  window_place next();
  /// Copies the next window (`window_bytes()` bytes). Fails with ec::io_error, as
  /// sample_data::read.
  status read_next(std::span<std::byte> out);
  [[nodiscard]] const sample_shape& shape() const { return data_->shape(); }
  [[nodiscard]] std::size_t window() const { return window_; }
  [[nodiscard]] std::size_t window_bytes() const { return window_ * shape().item_bytes; }
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

  std::shared_ptr<const sample_data> data_;
  std::size_t window_;
  random_source first_; // as it was given: the source of the first block
  random_source random_;
  std::uint64_t drawn_ = 0;
  std::uint64_t fingerprint_ = 0;
  std::vector<std::uint64_t> ends_; // cumulative number of positions, by piece
};

/// The samples of a data set: its windows by number. The next window begins with the last item of
/// the one before it, which a model of text predicted there; windows of one item do not overlap.
/// What is left at the end of a piece is left out.
class window_grid {
public:
  window_grid(const sample_data& data, std::size_t window);
  /// The number of windows in all.
  [[nodiscard]] std::uint64_t count() const { return ends_.empty() ? 0 : ends_.back(); }
  /// REQUIRES: number < count().
  [[nodiscard]] window_place at(std::uint64_t number) const;

private:
  std::uint64_t step_;
  std::vector<std::uint64_t> ends_; // cumulative number of windows, by piece
};

} // namespace waggle
