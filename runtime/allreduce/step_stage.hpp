#pragma once

#include <atomic>
#include <cstdint>
#include <string_view>

namespace waggle {

/// How far a step of an averager is.
enum class step_stage : std::uint8_t { looking_for_group, awaiting_trigger, running, done };
constexpr std::string_view to_string(step_stage x) {
  constexpr std::string_view names[]{"looking for group", "awaiting trigger", "running", "done"};
  return names[static_cast<std::size_t>(x)];
}

/// Set by the averager, read by whoever began the step; stands for the step, too.
using step_progress = std::atomic<step_stage>;

} // namespace waggle
