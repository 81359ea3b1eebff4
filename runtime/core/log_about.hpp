#pragma once

#include <optional>

#include "runtime/core/error.hpp"
#include "runtime/core/ids.hpp"

namespace waggle {

/// What the lines are about that this thread logs while this object lives. JSON lines have it as
/// fields, so that nobody has to look for it in sentences. An inner object adds to an outer one.
class log_about {
public:
  /// Zero, none or nothing: not known.
  struct fields {
    std::optional<epoch_id> epoch{};
    round_id round{};
    peer_id remote{}; // another peer
    ec reason = ec::none;
    std::optional<double> loss{};
    std::optional<double> samples_per_second{};
    std::optional<double> seconds{}; // that it took; of the progress: an epoch
  };

  explicit log_about(const fields& known);
  ~log_about() { now_ = outer_; }
  log_about(const log_about&) = delete;
  log_about& operator=(const log_about&) = delete;

  [[nodiscard]] static const fields& now() { return now_; }

private:
  static thread_local fields now_;
  const fields outer_;
};

} // namespace waggle
