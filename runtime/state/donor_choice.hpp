#pragma once

#include <optional>
#include <vector>

#include "runtime/core/endpoint.hpp"
#include "runtime/core/time.hpp"
#include "runtime/core/time_outs.hpp"

namespace waggle {

/// Chooses the donors to ask for the run's state, and the pauses between attempts. A donor whose
/// state was refused is skipped for a time that doubles, unless no other donor is left. One that
/// was too slow is the last to be asked. Not thread-safe.
class donor_choice {
public:
  static constexpr milliseconds pause_min{500};
  static constexpr milliseconds pause_max{8'000};
  /// Downloads within this time of each other are repeated ones.
  static constexpr milliseconds repeated_within{10'000};

  /// The subset of `donors` to ask now, in their order, slow ones last; empty only if `donors` is
  /// empty.
  [[nodiscard]] std::vector<peer_record> among(std::vector<peer_record> donors,
                                               steady_time now) const;
  /// The state from this donor could not be used, or is not that of the others.
  void refuse(const peer_id& donor, steady_time now) { (void)refused_.add(donor, now); }
  /// The number of donors that are skipped.
  [[nodiscard]] std::size_t refused(steady_time now) const { return refused_.count(now); }
  /// The donor was too slow: it is asked after all others for a while. It may be this peer's own
  /// link that is slow, so it is not refused.
  void ask_last(const peer_id& donor, steady_time now) { (void)slow_.add(donor, now); }
  /// A state was accepted. Returns how long to wait before the next download: nothing, unless this
  /// one was repeated; then twice the last pause.
  [[nodiscard]] milliseconds succeeded(steady_time now);
  /// The attempt ended without a state. Returns how long to wait before the next one: twice the
  /// last pause, within the bounds above.
  [[nodiscard]] milliseconds failed();

private:
  time_outs refused_{{milliseconds{5'000}, milliseconds{600'000}, 1'024}};
  time_outs slow_{{milliseconds{600'000}, milliseconds{3'600'000}, 1'024}};
  milliseconds pause_{0};
  milliseconds repeated_pause_{0};
  std::optional<steady_time> accepted_; // the last state
};

} // namespace waggle
