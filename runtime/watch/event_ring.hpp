#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/core/bytes.hpp"
#include "runtime/watch/events.hpp"

namespace waggle {

/// The last events of this start of the peer, as numbered lines of JSON: `bytes_max` of them, and
/// beyond that the last few of each kind, for those that begin to watch. Thread-safe.
class event_ring {
public:
  using line = std::shared_ptr<const std::string>;
  using number = std::uint64_t; // from 1

  static constexpr std::size_t rounds_kept = 64;
  static constexpr std::size_t others_kept = 100; // of each other kind, and half as many epochs
  static constexpr std::size_t checkpoints_kept = 10;

  /// @param start names this start of the peer: the numbers begin anew with each.
  explicit event_ring(std::string start, std::size_t bytes_max = 1_MiB)
    : start_(std::move(start)), bytes_max_(bytes_max) {}

  /// Adds an event and hands it to the listeners, on this thread.
  void note(const watch::event& what, const peer_id& writer, swarm_time now);
  /// Is called with each event that is noted from now on, by several threads in turn, until it
  /// returns false. Must neither wait nor note events.
  using listener = std::function<bool(const watch::event&, swarm_time)>;
  void listen(listener to);

  /// @param fields of the line without its number (watch::fields_of).
  void push(watch::event_kind kind, std::string_view fields);

  struct batch {
    std::uint64_t missed = 0; // overtaken since: the lines begin with a later one
    std::vector<line> lines;
    std::vector<watch::event_kind> kinds; // of each line
    number last = 0;                      // continue after this one
  };
  /// The lines after `seen`, at least one if there is any, at most `bytes` bytes.
  [[nodiscard]] batch after(number seen, std::size_t bytes) const;

  [[nodiscard]] const std::string& start() const { return start_; }
  [[nodiscard]] number last() const;

  struct recent {
    std::vector<line> rounds; // oldest first
    std::vector<line> others; // by number
    number last = 0;
  };
  [[nodiscard]] recent newest() const;

private:
  struct entry {
    number at;
    watch::event_kind kind;
    line text;
  };

  const std::string start_;
  const std::size_t bytes_max_;
  mutable std::mutex mutex_; // guards everything up to newest_
  std::deque<entry> ring_;
  std::size_t bytes_ = 0;
  number last_ = 0;
  std::array<std::deque<entry>, watch::event_kinds> newest_;
  std::mutex listening_; // guards listeners_
  std::vector<listener> listeners_;
};

} // namespace waggle
