#pragma once

#include <span>
#include <string>
#include <string_view>

#include "runtime/core/ids.hpp"
#include "runtime/core/result.hpp"

namespace waggle {

/// The learning rate as a pure function of the epoch, so that all peers at an epoch have the same
/// rate, regardless of how they reached it (INV-3).
struct lr_schedule {
  enum class shape : std::uint8_t { constant, warmup_cosine };

  shape kind = shape::constant;
  double peak = 1e-3;
  std::uint64_t warmup_epochs = 0; // linear from peak / warmup_epochs
  std::uint64_t total_epochs = 0;  // cosine: where `floor` is reached; later epochs stay there
  double floor = 0;

  [[nodiscard]] double at(epoch_id epoch) const;
};

/// One shape: everything that the rest of the program knows about it.
struct schedule_row {
  lr_schedule::shape id;
  std::string_view name;
  std::string_view note; // for the help of --schedule, in parentheses after the name
  bool needs_epochs;     // it depends on where the run ends
  /// The rate at epoch `k`. REQUIRES: k ≥ warmup_epochs.
  double (*after_warmup)(const lr_schedule& schedule, std::uint64_t k);
};

/// All shapes, in the order of the enumerators.
std::span<const schedule_row> schedule_table();

result<lr_schedule::shape> parse_schedule(std::string_view name);
std::string_view to_string(lr_schedule::shape kind);

} // namespace waggle
