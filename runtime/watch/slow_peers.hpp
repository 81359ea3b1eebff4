#pragma once

#include <cstddef>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/core/ids.hpp"
#include "runtime/core/time.hpp"
#include "runtime/watch/events.hpp"

namespace waggle {

/// Why a member of our rounds makes the others wait, or is of little use.
enum class slow_cause : std::uint8_t {
  passes,         // its passes take longer than those of the others, so it starts late
  starts_late,    // its first contribution is late, for another reason
  sends_slowly,   // from its first to its last contribution takes longer
  reduces_slowly, // its sums come late, after contributions that were in time
  far,            // the round trip to it explains it
  pauses,         // it is late now and then, and in time otherwise
  adds_little,    // of the samples
};
/// "starts_late"
std::string_view to_string(slow_cause x);
constexpr std::size_t slow_causes = 7;

struct slow_peer {
  peer_id peer;
  slow_cause cause = slow_cause::starts_late;
  double number = 0; // milliseconds that it costs, or what the text names
  std::string text;  // "its passes take 2.1 s, those of the others 0.2 s"
};

struct slow_report {
  std::vector<slow_peer> peers; // the one that costs most first
  /// Not empty: why this peer does not know.
  std::string cannot_tell;
};

/// The last rounds by which peers are judged: `count` of them. Of rounds that follow each other
/// fast the one of each half second in which a contribution or result came latest, so that they
/// show what happens now and then. Not thread-safe.
class round_window {
public:
  static constexpr std::size_t count = 16;
  static constexpr auto apart = milliseconds{500};

  /// Returns whether it is one more than before, or in place of another.
  bool add(watch::round_ended round, steady_time now);
  [[nodiscard]] const std::deque<watch::round_ended>& rounds() const { return rounds_; }

private:
  std::deque<watch::round_ended> rounds_;
  std::optional<steady_time> slot_; // of the last one
};

/// What a peer reports of its passes: a claim, which can only make the peer itself look slow unless
/// most others lie, too.
struct reported_pass {
  double seconds = 0;
  double samples_per_second = 0; // waits between passes included
};

/// The seconds of passes of the members of a round, such that whose are longer is slower. Where an
/// epoch is counted in samples, larger passes are no slower ones: `by_samples`, a peer's passes
/// count as at most so many times those of the others as its samples per second are fewer.
std::map<peer_id, double> comparable_passes(const std::map<peer_id, reported_pass>& of,
                                            bool by_samples);

/// Who slows these rounds down, and why: at most `slow_peers_max`. Nobody before slow_rounds_min
/// rounds, nor for less than a fifth of a round's median duration, nor for less than slow_ms_min,
/// which is what a busy machine's scheduler takes.
/// @param pass_seconds of the members that report how long their passes take.
slow_report find_slow(const std::deque<watch::round_ended>& rounds,
                      const std::map<peer_id, double>& pass_seconds);

constexpr std::size_t slow_peers_max = 2;
constexpr std::size_t slow_rounds_min = 4;
constexpr double slow_share_min = 0.2;
constexpr double slow_ms_min = 30;
/// A member adds little below this part of an equal share of the samples.
constexpr double little_share = 0.25;

/// Judges each round with those before it, and names a peer only once it has been found for a
/// while without a break: the scheduler of a busy machine makes a peer late now and then. Whom it
/// names keeps its cause until another one has been found as long as a window lasts: what is slow
/// for one reason often looks, for some rounds, as if it were for another. Not thread-safe.
class slow_watch {
public:
  /// Whose own reports say that its passes take longer.
  static constexpr auto reported_after = std::chrono::seconds{2};
  /// Otherwise: the window is another one than that in which it was found first. Where rounds are
  /// rare, the time is enough.
  static constexpr std::size_t named_rounds = round_window::count - slow_rounds_min + 1;
  static constexpr auto named_after = std::chrono::seconds{10};
  static constexpr auto named_in_any_case = std::chrono::minutes{2};
  static constexpr std::size_t steady_rounds = 10; // of another cause, or without any

  /// @param pass_seconds as for find_slow.
  slow_report add(watch::round_ended round, const std::map<peer_id, double>& pass_seconds,
                  steady_time now);

private:
  struct streak {
    slow_cause cause{};
    steady_time since;
    std::size_t rounds = 0;
    [[nodiscard]] bool lasts(std::size_t rounds_min, steady_time now) const {
      return (rounds >= rounds_min && now - since >= named_after)
             || now - since >= named_in_any_case;
    }
  };
  struct finding {
    slow_peer what;
    streak found;             // from the first time on
    std::optional<streak> as; // that it has now, another cause than it is named with
    std::size_t missed = 0;   // rounds in which it was not found
    bool named = false;
  };

  round_window window_;
  std::map<peer_id, finding> found_;
};

} // namespace waggle
