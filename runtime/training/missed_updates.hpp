#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "runtime/core/float_vector.hpp"
#include "runtime/core/history.hpp"
#include "runtime/training/decided_round.hpp"

namespace waggle {

/// The number of samples that a round's sum of weights stands for. Weights are claims of other
/// peers, so the number is clamped to 2^40: more than any epoch has, and small enough that sums do
/// not overflow.
inline std::uint64_t samples_of(double weight_sum) {
  return static_cast<std::uint64_t>(std::clamp(weight_sum, 0.0, 0x1p40));
}

/// The update that ends an epoch: enough to compute the next state from the state at the epoch's
/// beginning.
struct missed_update {
  epoch_id epoch;                           // the epoch that it ends
  std::shared_ptr<const float_vector> mean; // null: no peer had a gradient, or nothing changes
  /// What this peer contributed to the mean of parameters or buffers: the difference is added to
  /// ours. Null: nothing.
  std::shared_ptr<const float_vector> snapshot;
  double rate = 0;
  /// Where this peer's data was after the samples that it contributed; empty: it gave none.
  std::string position;
  std::uint64_t work = 0; // samples times contributors
  digest branch;          // of the epoch that begins; differs from `before` if the history forked
  digest before;          // of the epoch that it ends
  std::int64_t steps = 0; // by which history::steps changes
  decided_round by{};     // for learner::end_epoch

  [[nodiscard]] std::uint64_t bytes() const {
    auto values = (mean ? mean->size() : 0) + (snapshot ? snapshot->size() : 0);
    return values * sizeof(float);
  }
  /// The history after it is applied to a state of `before`.
  [[nodiscard]] history after(history before) const {
    // Both are claims of other peers: a sum that wraps around would rank the longest history last,
    // or begin the schedule again.
    auto added = [](std::uint64_t to, std::uint64_t more) {
      return to > ~std::uint64_t{0} - more ? ~std::uint64_t{0} : to + more;
    };
    before.work = added(before.work, work);
    if (steps >= 0)
      before.steps = added(before.steps, static_cast<std::uint64_t>(steps));
    else
      before.steps -= std::min(before.steps, static_cast<std::uint64_t>(-steps));
    if (branch != before.branch) {
      before.parent = before.branch;
      before.branch = branch;
      before.forked_at = epoch;
    }
    return before;
  }
};

/// The updates of consecutive epochs, kept by a peer that takes part in rounds while it downloads
/// the state to which they apply. Bounded in memory. Not thread-safe.
class missed_updates {
public:
  explicit missed_updates(std::uint64_t bytes_max) : bytes_max_(bytes_max) {}

  void clear() {
    updates_.clear();
    bytes_ = 0;
  }
  /// REQUIRES: it ends the epoch after the one of the last update. False: there is no room, and all
  /// updates were dropped.
  bool add(missed_update update) {
    bytes_ += update.bytes();
    updates_.push_back(std::move(update));
    if (bytes_ <= bytes_max_)
      return true;
    clear();
    return false;
  }
  [[nodiscard]] std::size_t size() const { return updates_.size(); }
  [[nodiscard]] std::uint64_t bytes() const { return bytes_; }

  /// The updates to apply to a state at the beginning of `epoch` to reach `target`; nothing if some
  /// of them are missing. Forgets all updates.
  std::optional<std::deque<missed_update>> take(epoch_id epoch, epoch_id target) {
    auto all = std::exchange(updates_, {});
    bytes_ = 0;
    while (!all.empty() && all.front().epoch < epoch)
      all.pop_front();
    auto count = target < epoch ? 0 : target.value() - epoch.value();
    if (target < epoch || all.size() != count || (count > 0 && all.front().epoch != epoch))
      return std::nullopt;
    return all;
  }

private:
  std::uint64_t bytes_max_;
  std::uint64_t bytes_ = 0;
  std::deque<missed_update> updates_;
};

} // namespace waggle
