#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "runtime/core/result.hpp"
#include "runtime/training/schedule.hpp"

namespace waggle {

// Schedules as users write them: a name, or a name with numbers ("step:every=30,factor=0.1"), or a
// sequence of these ("linear:epochs=5/cosine").

/// Fails with ec::bad_config and half a sentence that follows the text.
result<std::vector<schedule_part>> parse_schedule(std::string_view text);
/// One spelling for equal parts, with all numbers; `parse_schedule` reads it.
std::string text_of(const std::vector<schedule_part>& parts);

/// The learning rates of a run of `total_epochs` (0: no end is known). A last part without a length
/// lasts until the end of the run. Fails with ec::bad_config and a sentence with the cure.
result<lr_schedule> make_schedule(std::vector<schedule_part> parts, double peak,
                                  std::uint64_t warmup_epochs, std::uint64_t total_epochs);
/// `text_of` the parts without a length that the end of the run gives the last one anyway: equal
/// exactly for equal schedules of runs with equal lengths and warm-ups.
std::string agreed_text(std::vector<schedule_part> parts, std::uint64_t warmup_epochs,
                        std::uint64_t total_epochs);

/// All schedules with their numbers, for the help text.
std::string schedule_help();

} // namespace waggle
