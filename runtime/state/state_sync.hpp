#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "runtime/core/endpoint.hpp"
#include "runtime/core/time.hpp"
#include "runtime/core/time_outs.hpp"

namespace waggle {

/// How a peer comes to the state of its group: whom it asks and when, and what it makes of the
/// answers. One download at a time.
///
/// | phase    | left by                                                                  |
/// |----------|--------------------------------------------------------------------------|
/// | idle     | ask → fetching                                                           |
/// | fetching | fetched → loading; failed → idle; stop: it is not needed any more → idle |
/// | loading  | loaded, or refused: it is not the state that was wanted → idle           |
///
/// After a failure it pauses, longer after each one, and after a download that soon follows another
/// one. A donor whose state was refused is skipped for a time that doubles, unless no other donor
/// is left. One that was too slow is asked after all others for a while: it may be this peer's own
/// link that is slow. Not thread-safe.
class state_sync {
public:
  enum class phase : std::uint8_t { idle, fetching, loading };
  using peers = std::shared_ptr<std::vector<peer_id>>;

  /// A donor's state may be so many epochs ahead of what we know of our group.
  static constexpr std::uint64_t epochs_ahead = 2;
  static constexpr milliseconds pause_min{500};
  static constexpr milliseconds pause_max{8'000};
  /// Downloads within this time of each other are repeated ones.
  static constexpr milliseconds repeated_within{10'000};
  /// After so many states in sequence that were too old, the pauses are this long.
  static constexpr milliseconds patience_with_old_states{4'000};
  static constexpr milliseconds slow_pause_min{15'000};
  static constexpr milliseconds slow_pause_max{600'000};

  struct request {
    std::uint64_t number = 0;
    std::vector<peer_record> donors; // in the order in which to ask them
    peers suspects;                  // filled in by the download: they offered another state
    peers slow;                      // likewise: they were too slow
  };
  struct download {
    steady_time began;
    peer_id donor;
    std::uint64_t bytes = 0;
    bool resumed = false; // it had parts from several donors
  };

  [[nodiscard]] phase at() const { return phase_; }
  [[nodiscard]] bool busy() const { return phase_ != phase::idle; }
  [[nodiscard]] bool may_ask(steady_time now) const {
    return phase_ == phase::idle && now >= ask_after_;
  }
  [[nodiscard]] bool awaits(std::uint64_t number) const {
    return phase_ == phase::fetching && number == number_;
  }
  /// The present download, or the last one.
  [[nodiscard]] const download& last() const { return last_; }
  [[nodiscard]] double seconds(steady_time now) const { return seconds_of(now - last_.began); }
  /// When the last state was loaded, and the seconds from the question for it; 0: there was none.
  [[nodiscard]] steady_time loaded_at() const { return loaded_at_; }
  [[nodiscard]] double took() const { return took_; }
  /// Donors that are not asked for a while.
  [[nodiscard]] std::size_t refused(steady_time now) const { return refused_.count(now); }

  request ask(std::vector<peer_record> holders, steady_time now);
  /// A download has ended, perhaps one that was stopped: its slow donors are asked last.
  void note_slow(const std::vector<peer_id>& slow, steady_time now);
  /// These two return the donors that offered another state than most, which are not asked for a
  /// while.
  [[nodiscard]] std::vector<peer_id> fetched(const peer_id& donor, std::uint64_t bytes,
                                             bool resumed, steady_time now);
  [[nodiscard]] std::vector<peer_id> failed(steady_time now);
  void stop();
  /// It is not the state that was wanted. Its donor is not asked for a while.
  void refused_state(steady_time now);
  /// What this peer holds is not what most hold: the last donor is not asked for a while.
  void differs(steady_time now);
  void loaded(steady_time now);

  /// The state that was loaded is of use.
  void is_of_use(steady_time now);
  /// It was too old when it arrived. Returns whether that has happened so often that the run is too
  /// fast.
  bool was_too_old(steady_time now);
  /// The run is faster than the download. Returns for how long to leave the bandwidth to others.
  milliseconds was_too_slow();

private:
  [[nodiscard]] std::vector<peer_id> refuse_suspects(steady_time now);
  /// The attempt ended without a state. Returns how long to wait before the next one.
  milliseconds pause_after_failure(steady_time now);

  phase phase_ = phase::idle;
  std::uint64_t number_ = 0; // of the last request
  time_outs refused_{{milliseconds{5'000}, milliseconds{600'000}, 1'024}};
  time_outs slow_{{milliseconds{600'000}, milliseconds{3'600'000}, 1'024}};
  milliseconds pause_{0};
  milliseconds repeated_pause_{0};
  std::optional<steady_time> accepted_; // the last state that was of use
  peers suspects_;                      // of the present download
  download last_;
  steady_time ask_after_, loaded_at_;
  double took_ = 0;
  milliseconds slow_pause_{0};
};

} // namespace waggle
