#include "runtime/core/wait_log.hpp"

namespace waggle {

std::optional<wait_log::line> wait_log::look(const std::string& what, steady_time now) {
  bool changed = what != what_;
  what_ = what;
  if (what.empty()) {
    ended_ = ended_.value_or(now);
    return std::nullopt;
  }
  if (changed)
    since_ = now;
  if (ended_ && (*ended_ == steady_time::min() || now - *ended_ >= pause_max))
    began_ = told_ = now;
  ended_.reset();
  if (now - told_ >= interval) {
    told_ = now;
    auto seconds = std::chrono::duration_cast<std::chrono::seconds>(now - began_).count();
    return line{true, "for " + std::to_string(seconds) + " s now waiting"
                        + (since_ == began_ ? " for " : ", at present for ") + what};
  }
  return changed ? std::optional{line{false, "waiting for " + what}} : std::nullopt;
}

} // namespace waggle
