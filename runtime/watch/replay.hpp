#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

#include "runtime/core/ids.hpp"
#include "runtime/core/result.hpp"
#include "runtime/core/time.hpp"
#include "runtime/core/windowed_rate.hpp"
#include "runtime/watch/event_stream.hpp"
#include "runtime/watch/timeline.hpp"

namespace waggle {

/// A timeline in order, by kind of event: a jump to any time reads few rounds and epochs, which
/// most lines are. Does not change, so any number of threads may read it.
class recording {
public:
  using track = std::vector<std::uint32_t>; // places in `events`, ascending
  struct peer {
    track rounds;
    track epochs;
  };

  /// @param all after `align`, which succeeded: there is at least one event.
  explicit recording(timeline all);

  [[nodiscard]] const std::vector<logged_event>& events() const { return all_.events(); }
  [[nodiscard]] std::string run() const { return all_.run(); }
  [[nodiscard]] std::int64_t begin() const { return events().front().t; } // Unix milliseconds
  [[nodiscard]] std::int64_t end() const { return events().back().t; }
  [[nodiscard]] const std::map<peer_id, peer>& peers() const { return peers_; } // by writer
  [[nodiscard]] const track& others() const { return others_; } // all but rounds and epochs
  /// Whose log says the most.
  [[nodiscard]] peer_id main_peer() const;
  /// When peers left and the run split: [[t, "a peer left"], …].
  [[nodiscard]] nlohmann::ordered_json marks() const;
  /// What the line said, with the times that `align` gave it.
  [[nodiscard]] nlohmann::ordered_json event(std::size_t at) const;

private:
  timeline all_;
  std::map<peer_id, peer> peers_;
  track others_;
};

/// Where a replay begins and how it goes on.
struct replay_request {
  static constexpr std::int64_t speed_max = 100'000;

  std::optional<peer_id> as{}; // of whose page; nothing: recording::main_peer
  std::int64_t at = 0;         // Unix milliseconds; moved into the recording
  std::int64_t speed = 1;      // seconds of the recording a second; 0: it stands still

  /// Reads "at=…&speed=…&peer=…", each at most once and in any order. Fails with ec::malformed.
  static result<replay_request> parse(std::string_view query);
};

/// One client that watches a recording: the same stream of frames as a peer's (event_stream). The
/// snapshot and the vitals, which no log has, are made of the events up to that time: of the peer's
/// own ones, and of what the others' logs say of themselves. Not thread-safe.
class replay {
public:
  /// Adds to a status what follows from it (symptoms.hpp).
  using completion = void (*)(nlohmann::ordered_json& status);

  /// The peer of `request` is one of the recording's. @param complete null: nothing is added.
  replay(std::shared_ptr<const recording> from, const replay_request& request,
         completion complete = nullptr);
  replay(const replay&) = delete;
  replay& operator=(const replay&) = delete;

  /// The next bytes; empty: nothing is new.
  std::string next(steady_time now);

private:
  using json = nlohmann::ordered_json;
  void advance(std::int64_t to);
  json& known(const std::string& id);
  void fold(const json& event);
  void fold_epoch(json& its, const std::string& writer, const json& event);
  void fold_own(const json& event, const std::string& type);
  [[nodiscard]] std::uint64_t furthest() const;
  [[nodiscard]] json status() const;
  [[nodiscard]] json peers() const;
  [[nodiscard]] json losses() const;
  [[nodiscard]] std::string snapshot() const;
  [[nodiscard]] std::string vitals() const;

  /// What the log of a peer says of its epochs.
  struct pace {
    windowed_rate used;
    std::int64_t until = 0; // of the last line
    std::uint64_t epoch = 0;
    std::uint64_t lag = 0;    // epochs, behind the furthest peer
    std::uint64_t epochs = 0; // that the last line covers
    double seconds = 0;       // together
  };

  const std::shared_ptr<const recording> from_;
  const peer_id self_;
  const std::int64_t began_at_;
  const std::int64_t speed_;
  const completion complete_;
  const std::shared_ptr<event_ring> ring_;
  event_stream stream_;
  std::optional<steady_time> began_;
  std::int64_t t_;                    // up to which events were read
  std::size_t done_ = 0;              // how many
  std::map<std::string, json> known_; // as in /api/v1/peers: who wrote, and who was met
  std::map<std::string, pace> paces_;
  std::set<std::string> here_; // linked with this peer, by its log
  std::deque<json> left_;      // the latest first
  std::string notice_;
};

} // namespace waggle
