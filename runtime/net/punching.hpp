#pragma once

#include <cstddef>
#include <map>
#include <optional>
#include <utility>

#include "runtime/core/endpoint.hpp"
#include "runtime/core/result.hpp"
#include "runtime/core/time.hpp"
#include "runtime/net/reachability.hpp"

namespace waggle::net {

/// The pairs of peers for which something was done lately. Not thread-safe.
class recent_pairs {
public:
  /// A pair counts for so long; over `max` pairs nothing is done for a further one.
  explicit recent_pairs(milliseconds again, std::size_t max = 1'024) : again_(again), max_(max) {}

  /// ec::none: it is done now. Else ec::rate_limited, or overloaded.
  [[nodiscard]] ec take(const peer_id& one, const peer_id& other, steady_time now);
  [[nodiscard]] bool contains(const peer_id& one, const peer_id& other, steady_time now) const;

private:
  using pair = std::pair<peer_id, peer_id>; // the smaller id first
  milliseconds again_;
  std::size_t max_;
  std::map<pair, steady_time> pairs_;
};

/// Between two punches of one pair. Neither router nor peers change in less.
constexpr milliseconds punched_again{600'000};

/// What a peer that brings two others together knows of one of them.
struct punch_end {
  peer_id peer;
  bool dialled_us = false;         // so its router has let it out, from where we see it
  std::optional<endpoint> seen_at; // the socket of its link, as we see it
  std::chrono::microseconds round_trip{0};
};

/// Decides for a peer that is asked to bring two others together (punching): each router lets in
/// what comes from where its peer has just dialled, so both dial at the same moment. Knows neither
/// clock nor network. Not thread-safe.
class punch_broker {
public:
  struct options {
    milliseconds again = punched_again;
    std::size_t pairs_max = 1'024;
    dial_back_limits::options told{12, 1'024};
    milliseconds wait_max{1'000}; // of a path that is slower only the rest is late
  };
  /// After these times, from when the message about it leaves us, each of the two dials.
  struct moments {
    milliseconds one, other;
  };

  punch_broker() : punch_broker(options{}) {}
  explicit punch_broker(options opts)
    : options_(opts), pairs_(opts.again, opts.pairs_max), told_(opts.told) {}

  /// Each is told where we see the other, and nothing else: nobody can have a third host dialled.
  /// `other`: nothing if it has no link with us (ec::not_found). Fails with ec::unreachable if we
  /// have dialled one of the two, or one speaks another version of IP with us or is in our private
  /// network; with ec::overloaded if one was told of many others just now; with
  /// ec::protocol_violation if they are one peer; as recent_pairs.
  [[nodiscard]] result<moments> introduce(const punch_end& one,
                                          const std::optional<punch_end>& other, steady_time now);

private:
  options options_;
  recent_pairs pairs_;
  dial_back_limits told_; // notes to each peer: fewer than it would follow
};

} // namespace waggle::net
