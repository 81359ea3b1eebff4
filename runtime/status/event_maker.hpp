#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "runtime/core/endpoint.hpp"
#include "runtime/core/error.hpp"
#include "runtime/core/ids.hpp"
#include "runtime/core/time.hpp"
#include "runtime/status/peer_status.hpp"
#include "runtime/watch/events.hpp"
#include "runtime/watch/slow_peers.hpp"

namespace waggle {

struct departure {
  peer_id peer;
  std::string reason;
  std::string code; // of the reason
  swarm_time at{};
  steady_time when;
  std::vector<endpoint> addresses{};
  bool lost = true;        // it did not say goodbye
  std::uint64_t times = 1; // that it left, this one included
  bool back = false;
  bool recent = true; // in the last ten minutes
};

struct presence {
  steady_time since;
  std::vector<endpoint> addresses; // none: a client
};

/// Makes events of what a peer's actors report: of what has changed since the report before. It
/// outlives the actor that asks it, so that one that was started again tells no old news. Others
/// can connect and leave as often as they like: beyond links_per_second_max such events a second,
/// only their number is kept. Not thread-safe.
class event_maker {
public:
  using events = std::vector<watch::event>;

  static constexpr std::uint32_t links_per_second_max = 10;
  static constexpr std::size_t departures_max = 256;
  static constexpr auto departures_recent = std::chrono::minutes{10};
  static constexpr auto refused_interval = std::chrono::minutes{1};

  events on_status(const training_status& now_is, steady_time now);
  /// Nothing, if the peer is known to be connected.
  events on_connected(const peer_record& peer, const std::string& link, steady_time now);
  events on_disconnected(const peer_id& peer, const failure& why, steady_time now, swarm_time wall);
  events on_slow(const slow_report& found);
  /// Judges the rounds for on_slow. Here, because one that began anew would find nobody slow.
  [[nodiscard]] slow_watch& slow_rounds() { return slow_rounds_; }
  /// At once when most is refused for another reason than before, else once a minute.
  /// @param counts of refused input since the start, by code (ec).
  events on_refused(std::span<const std::uint64_t> counts, steady_time now);

  /// The last departure of each peer that left, the latest first.
  [[nodiscard]] std::vector<departure> departures(steady_time now) const;
  [[nodiscard]] const std::map<peer_id, presence>& present() const { return connected_; }

private:
  bool may_tell_of_link(steady_time now);

  std::optional<training_status> last_;
  steady_time epoch_told_{};
  epoch_id told_epoch_;
  std::uint64_t told_samples_ = 0;
  std::map<peer_id, presence> connected_;
  std::deque<departure> left_; // the latest first
  steady_time link_second_{};
  std::uint32_t links_told_ = 0;       // in this second
  std::uint64_t links_left_out_ = 0;   // since the last refused event
  std::vector<std::uint64_t> refused_; // by code, told
  std::optional<std::size_t> refused_code_;
  steady_time refused_told_{};
  std::optional<steady_time> left_out_told_;
  slow_watch slow_rounds_;
  std::map<peer_id, slow_peer> slow_; // told
};

} // namespace waggle
