#pragma once

#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>

#include "runtime/core/history.hpp"
#include "runtime/core/result.hpp"
#include "runtime/core/time.hpp"
#include "runtime/progress/progress_ledger.hpp"
#include "runtime/status/peer_status.hpp"
#include "runtime/training/training_curves.hpp"

namespace waggle {

/// The curves of the run in which this peer is: what it has seen itself, and before that what the
/// peer had seen from which it has its state, or this one before its checkpoint. Thread-safe.
class run_curves {
public:
  /// The points that are sent to other peers, whose links are not for us alone.
  static constexpr std::size_t points_sent = 600;

  /// @param run whose peers are counted.
  void on_status(const training_status& now_is, const swarm_progress& run, swarm_time now);
  /// What others have seen of epochs that this peer has not: see training_curves::insert. Fails as
  /// training_curves::decode.
  status take(std::string_view image, std::optional<epoch_id> after, epoch_id until,
              swarm_time now);
  /// None: there are no points.
  [[nodiscard]] std::optional<epoch_id> last() const;
  /// training_curves::encode; empty: there are no points. REQUIRES: points ≥ 2, here and below.
  [[nodiscard]] std::string image(std::size_t points = training_curves::points_max) const;
  /// {"epoch":[…],"samples":[…],"t":[…],"loss":[…],…,"best":{"loss":{"epoch","value"},…}}: a list
  /// for each curve, null where it is not known.
  [[nodiscard]] std::string json(std::size_t points = training_curves::points_max) const;

private:
  struct seen {
    epoch_id epoch;
    history past;
  };
  void add(const training_status& now_is, epoch_id before, const swarm_progress& run,
           swarm_time now);

  mutable std::mutex mutex_;
  training_curves curves_;
  std::optional<seen> last_; // of this start; none: the model is not there yet
  std::optional<epoch_id> evaluated_;
};

} // namespace waggle
