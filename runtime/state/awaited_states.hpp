#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "runtime/core/ids.hpp"
#include "runtime/core/time.hpp"
#include "runtime/state/state_vote.hpp"

namespace waggle {

/// Requests for a state of an epoch that a group is about to reach: newcomers compare the states of
/// several donors, which must be of one epoch. They wait for an epoch that is so near, or reached
/// in that time, for at most so long. Bounded. Not thread-safe.
template <class Request>
class awaited_states {
public:
  static constexpr std::uint64_t epochs_near = 16;
  static constexpr std::uint64_t epochs_max =
    std::uint64_t{1} << (2 * (state_vote::alignments_max - 1)); // what state_vote::align asks for
  static constexpr std::size_t requests_max = 64;
  static constexpr auto lasts = std::chrono::seconds{10};

  /// Whether to wait for `wanted` in a group at `epoch`. @param epoch_seconds how long one lasts;
  /// 0: not known.
  [[nodiscard]] bool awaits(epoch_id wanted, epoch_id epoch, double epoch_seconds) const {
    if (wanted <= epoch || waiting_.size() >= requests_max)
      return false;
    auto ahead = wanted.value() - epoch.value();
    return ahead <= epochs_near
           || (ahead <= epochs_max
               && static_cast<double>(ahead) * epoch_seconds <= seconds_of(lasts));
  }
  void add(const digest& branch, epoch_id wanted, Request request, steady_time now) {
    waiting_.push_back({branch, wanted, now + lasts, std::move(request)});
  }
  void clear() { waiting_.clear(); }

  /// Removes the requests that need not wait any more, or cannot be fulfilled. To be called at each
  /// epoch, so that all donors give the state of the same one. @param branch of our group; zero: we
  /// are in none, or not in step. Returns them, and whether the epoch is reached.
  [[nodiscard]] std::vector<std::pair<Request, bool>> take(const digest& branch, epoch_id epoch,
                                                           steady_time now) {
    std::vector<std::pair<Request, bool>> out;
    for (auto& each : std::exchange(waiting_, {})) {
      bool here = !branch.is_zero() && each.branch == branch && now < each.until;
      if (here && each.wanted > epoch)
        waiting_.push_back(std::move(each));
      else
        out.emplace_back(std::move(each.request), here);
    }
    return out;
  }

private:
  struct waiting {
    digest branch;
    epoch_id wanted;
    steady_time until;
    Request request;
  };
  std::vector<waiting> waiting_;
};

} // namespace waggle
