#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/core/ids.hpp"
#include "runtime/core/result.hpp"

namespace waggle {

enum class curve : std::uint8_t {
  loss,
  eval_loss,
  eval_accuracy,
  learning_rate,
  samples_per_second,
  peers
};
constexpr std::size_t curve_count = 6;

enum class better : std::uint8_t { neither, lower, higher };

/// What is kept of a run from its first epoch on.
struct curve_row {
  std::string_view name; // as in /api/v1/status
  std::string_view what;
  better best = better::neither; // the best value outlives the thinning
  std::string_view missing{};    // why there may be no value; half a sentence
};
/// In the order of `curve`.
std::span<const curve_row> curve_table();

/// The end of an epoch, or of several.
struct curve_point {
  epoch_id epoch;            // that has begun
  std::uint64_t samples = 0; // in updates since the run's start, of all peers; about
  std::int64_t t = 0;        // Unix milliseconds
  std::array<float, curve_count> values = unknown();

  static constexpr std::array<float, curve_count> unknown() {
    std::array<float, curve_count> none{};
    none.fill(std::numeric_limits<float>::quiet_NaN());
    return none;
  }
  [[nodiscard]] float& operator[](curve which) { return values[static_cast<std::size_t>(which)]; }
  [[nodiscard]] float operator[](curve which) const {
    return values[static_cast<std::size_t>(which)];
  }
};

/// The course of a run in at most points_max points, of which each is a mean over its epochs. A
/// point covers more epochs as the run becomes longer: then neighbours become one. The first point
/// stays as it is. A function of what is added: no clock, no randomness. Not thread-safe.
///
/// Invariant: epochs ascend, samples and times do not fall, and values are finite or NaN (not
/// known).
class training_curves {
public:
  static constexpr std::size_t points_max = 1200;
  static constexpr std::uint64_t samples_max = std::uint64_t{1} << 62U;

  struct best_value {
    epoch_id epoch;
    float value = 0;
  };

  /// What was at this epoch or later goes. Values that are not finite are not known.
  void add(curve_point end);
  /// The weights of `epoch` have these values on held-out data. Nothing, if there is no point yet
  /// of that epoch or a later one.
  void evaluate(epoch_id epoch, double loss, double accuracy);
  /// Forgets what came after this epoch.
  void cut(epoch_id last);
  /// Takes the points of `theirs` in place of ours: those behind `after` (none: all) up to `until`.
  /// Times after `now` (Unix milliseconds) become `now`: another machine's clock may be wrong.
  /// Nothing, if there are none.
  void insert(const training_curves& theirs, std::optional<epoch_id> after, epoch_id until,
              std::int64_t now);

  [[nodiscard]] const std::vector<curve_point>& points() const { return points_; }
  [[nodiscard]] epoch_id last() const {
    return points_.empty() ? epoch_id{} : points_.back().epoch;
  }
  [[nodiscard]] std::optional<best_value> best(curve which) const;
  /// The same in at most `most` points. REQUIRES: most ≥ 2.
  [[nodiscard]] training_curves thinned(std::size_t most) const;

  /// For a file, and for other peers. Layout, little-endian:
  ///
  ///     magic "WGGLCV01" (8) | SHA-256 of all that follows (32)
  ///     | the best of each curve: epoch (8), value (4) | points (4)
  ///     | each point: epoch (8), samples (8), time (8), values (4 each)
  [[nodiscard]] std::string encode() const;
  /// Fails with ec::malformed for anything that `encode` does not write, or hash_mismatch.
  static result<training_curves> decode(std::string_view bytes);
  static constexpr std::size_t bytes_of(std::size_t points) {
    return 8 + 32 + curve_count * 12 + 4 + points * (24 + curve_count * 4);
  }

private:
  [[nodiscard]] std::uint64_t epochs_per_point() const;
  void thin(std::size_t most);
  void remove_from(epoch_id first);
  void note_best(curve which, epoch_id epoch, float value);

  std::vector<curve_point> points_;
  std::array<std::optional<best_value>, curve_count> best_;
};

} // namespace waggle
