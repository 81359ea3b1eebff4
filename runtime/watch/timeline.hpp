#pragma once

#include <cstddef>
#include <cstdint>
#include <istream>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/core/ids.hpp"
#include "runtime/core/result.hpp"

namespace waggle {

/// A line of an event log, as far as it matters for its place among others.
struct logged_event {
  std::int64_t t = 0; // Unix milliseconds; after `align`, of the clock of the first writer
  std::uint64_t seq = 0;
  peer_id writer;
  std::string type;
  round_id round{};           // of a `round`; else zero
  std::int64_t round_end = 0; // when it ended, by the writer's clock
  std::string line;           // JSON
};

/// The events of many peers in one order.
///
/// Clocks differ between machines, rounds do not: all members of a round end it together, within
/// the time that a message takes. So a peer's clock is corrected by the median of what the rounds
/// say that it shares with the others. Peers that share no round with them keep their own clocks.
class timeline {
public:
  static constexpr std::size_t line_bytes_max = 256 * 1024;
  /// Times before 2000 or after 2100 are refused.
  static constexpr std::int64_t t_min = 946'684'800'000;
  static constexpr std::int64_t t_max = 4'102'444'800'000;

  /// Reads a log. Lines that are torn, of a later version, or no events are left out and counted.
  void read(std::istream& log);
  /// Puts all events in order. Fails with ec::bad_config if there are none, or of several runs.
  status align();

  [[nodiscard]] const std::vector<logged_event>& events() const { return events_; }
  /// Its name; empty: no log begins with a start.
  [[nodiscard]] std::string run() const { return runs_.empty() ? "" : *runs_.begin(); }
  [[nodiscard]] std::size_t left_out() const { return left_out_; }
  /// By writer: milliseconds that were subtracted from its times.
  [[nodiscard]] const std::map<peer_id, std::int64_t>& offsets() const { return offsets_; }
  /// Writers that share no round with the first one: their own clocks were used.
  [[nodiscard]] const std::vector<peer_id>& unaligned() const { return unaligned_; }

private:
  std::vector<logged_event> events_;
  std::set<std::string> runs_; // that `start` lines name
  std::size_t left_out_ = 0;
  std::map<peer_id, std::int64_t> offsets_;
  std::vector<peer_id> unaligned_;
};

/// Reads one line; fails with ec::malformed.
result<logged_event> parse_event(std::string_view line);

/// Of local time, as strftime formats it. @param t Unix milliseconds.
std::string time_text(std::int64_t t, const char* format);

/// "12:34:56.789 1a2b3c4d Round 99aabbcc of epoch 7 complete, 12 ms, …", in local time, for a
/// terminal. Texts in it are not made harmless yet.
std::string text_of(const logged_event& event);

} // namespace waggle
