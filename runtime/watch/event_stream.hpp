#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "runtime/core/time.hpp"
#include "runtime/watch/event_ring.hpp"

namespace waggle {

/// One client of /api/v1/events: a cursor into the ring. It holds what it has begun to send and
/// nothing else, so a client that does not read costs no memory, and is not waited for: what was
/// overtaken meanwhile becomes one event `gap`, and a new snapshot follows. Not thread-safe.
///
///     snapshot ─► event … event ─► vitals, once a second ─► …
///        ▲                                    │
///        └───────────── gap ◄── overtaken ────┘
class event_stream {
public:
  /// What the stream shows besides the ring. Both return JSON without a line end.
  struct documents {
    /// All of the snapshot but `rounds` and `events`: "{…" without its end.
    std::function<std::string()> snapshot;
    std::function<std::string()> vitals;
    /// Applied to everything before it is sent. May be empty.
    std::function<void(std::string&)> mask{};
  };

  static constexpr std::size_t piece_bytes_max = 64_KiB;
  static constexpr std::size_t rounds_bytes_max = 384_KiB; // of the snapshot: the oldest go
  static constexpr auto vitals_interval = std::chrono::seconds{1};

  /// @param last_event_id what the client got last ("START-SEQ"); empty: it begins. If the ring
  /// does not have what follows it, or it is of another start, of the future or nonsense, the
  /// stream begins with `gap`.
  event_stream(std::shared_ptr<const event_ring> ring, documents show,
               std::string_view last_event_id);

  /// The next bytes, at most piece_bytes_max; empty: nothing is new.
  std::string next(steady_time now);

private:
  void compose(steady_time now);
  void add_frame(std::string_view name, std::string_view data);
  void add_snapshot();
  void add_gap(std::optional<std::uint64_t> missed);

  const std::shared_ptr<const event_ring> ring_;
  const documents show_;
  event_ring::number seen_ = 0;
  bool wants_snapshot_ = true;
  bool begins_with_gap_ = false;
  std::optional<steady_time> vitals_at_;
  std::string pending_;  // composed and not sent
  std::size_t sent_ = 0; // of it
};

} // namespace waggle
