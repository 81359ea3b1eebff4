#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "runtime/core/ids.hpp"
#include "runtime/training/named_number.hpp"
#include "runtime/training/plateau.hpp"

namespace waggle {

struct schedule_part;

/// One schedule: everything that the rest of the program knows about it.
struct schedule_row {
  std::string_view name;
  std::string_view help;                 // half a sentence
  std::span<const named_number> numbers; // besides its length; a list is the last one
  bool ends;                             // the rate depends on its length
  /// The rate in its epoch `e`, from 0 on. REQUIRES: a length above 0 if it `ends`.
  double (*rate)(const schedule_part& part, double peak, std::uint64_t e);
};

/// The schedule that depends on the loss (plateau.hpp): the last one of a sequence.
constexpr std::string_view plateau_name = "plateau";

/// All schedules.
std::span<const schedule_row> schedule_table();

/// A schedule with its numbers, alone or in a sequence.
struct schedule_part {
  const schedule_row* row = nullptr;
  std::vector<double> numbers; // in the order of row->numbers; the values of a list are the last
  std::optional<std::uint64_t> epochs{}; // its length

  /// REQUIRES: row->numbers has this name. The first value of a list.
  double operator[](std::string_view name) const;

  friend bool operator==(const schedule_part&, const schedule_part&) = default;
};

/// The learning rate as a pure function of the epoch, so that all peers at an epoch have the same
/// rate, regardless of how they reached it (INV-3). Only `plateau`, which is the last part, lowers
/// it further, as a function of the run's state. It is finite and not negative at every epoch.
///
///     epochs   0 … warmup_epochs       parts[0].epochs   …   until the end of the run
///     rate     rises to the peak   |   parts[0]      |   …   |   the last part
struct lr_schedule {
  /// One after another; none: constant. Each has a length, except a last one that does not end.
  std::vector<schedule_part> parts;
  double peak = 1e-3;
  std::uint64_t warmup_epochs = 0; // linear from peak / warmup_epochs

  /// Before a plateau lowers it.
  [[nodiscard]] double at(epoch_id epoch) const;
  /// The same at a share (0 to 1) of the epoch: where the rate changes steadily, in a warm-up or a
  /// part with an end, on the way to the next epoch's.
  [[nodiscard]] double within(epoch_id epoch, double share) const;
  /// The rule of the last part, if that is `plateau`.
  [[nodiscard]] std::optional<plateau_rule> plateau() const;
};

} // namespace waggle
