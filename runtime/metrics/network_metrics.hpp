#pragma once

#include <array>
#include <atomic>

#include "runtime/metrics/metric.hpp"

namespace waggle {

/// Connections to peers, what they carry, and what was refused.
class network_metrics {
  metric_registry& in_;
  using direction = label<"direction", "in", "out">;
  using plane = label<"plane", "control", "data", "shared">;
  static direction way(bool outbound) { return outbound ? direction{"out"} : direction{"in"}; }

public:
  explicit network_metrics(metric_registry& registry) : in_(registry) {}

  counter<direction, plane> network_bytes{
    in_, "waggle_network_bytes_total",
    "Bytes by direction and plane; shared: exchanged with a peer on this host through "
    "shared memory instead of TCP."};
  counter<some_codes<1, "reason", ec::none, ec::malformed, ec::unreachable, ec::timeout,
                     ec::bad_signature, ec::peer_lost, ec::io_error>>
    count_shared_memory{
      in_, "waggle_network_shared_memory_total",
      "Links to peers on this host that use shared memory (reason none), or why not."};
  gauge<direction> open_connections{in_, "waggle_network_connections",
                                    "Open connections to peers."};
  counter<direction> connections_opened{in_, "waggle_network_connections_opened_total",
                                        "Connections made, by direction."};
  counter<direction,
          some_codes<1, "reason", ec::peer_lost, ec::timeout, ec::shutting_down, ec::overloaded,
                     ec::protocol_violation, ec::malformed, ec::oversize, ec::bad_signature,
                     ec::duplicate_identity, ec::not_a_member, ec::none>>
    connections_closed{in_, "waggle_network_connections_closed_total",
                       "Connections that ended, by direction and reason."};
  counter<some_codes<4, "reason", ec::unreachable, ec::timeout, ec::wrong_run, ec::clock_skew,
                     ec::peer_lost, ec::shutting_down, ec::overloaded, ec::protocol_violation,
                     ec::malformed, ec::wrong_version, ec::bad_signature, ec::duplicate_identity,
                     ec::agreement_mismatch, ec::not_a_member>>
    count_dial_error{in_, "waggle_network_dial_errors_total", "Dials that failed, by reason."};
  counter<some_codes<
    17, "reason", ec::malformed, ec::oversize, ec::wrong_run, ec::wrong_version, ec::bad_signature,
    ec::protocol_violation, ec::non_finite, ec::wrong_shape, ec::bad_weight, ec::timeout,
    ec::implausible_norm, ec::clock_skew, ec::agreement_mismatch, ec::not_a_member, ec::overloaded,
    ec::rate_limited, ec::unknown_round, ec::duplicate_identity, ec::unreachable, ec::not_owner,
    ec::not_looking, ec::epoch_mismatch, ec::schema_mismatch, ec::wrong_group_key, ec::bad_config,
    ec::hash_mismatch, ec::bad_expiry, ec::excluded, ec::peer_lost>>
    refused_inputs{in_, "waggle_network_refused_total",
                   "Connections, frames and messages that were refused, by reason."};
  counter<> count_link_hold{
    in_, "waggle_network_link_holds_total",
    "Times that a link was not read for a while, because its peer sent more than it "
    "may make this peer process."};
  std::array<std::atomic<std::uint64_t>, ec_max + std::size_t{1}> refused_so_far_{};
  histogram<> observe_rtt{in_, "waggle_network_rtt_seconds",
                          "Round-trip time of pings to connected peers.", rpc_seconds};

  /// @param data the body of a part or of a state, else a message.
  void count_network_bytes(bool outbound, bool data, double bytes) {
    network_bytes(way(outbound), data ? plane{"data"} : plane{"control"}, bytes);
  }
  void count_shared_bytes(bool outbound, double bytes) {
    network_bytes(way(outbound), "shared", bytes);
  }
  void set_connections(double in, double out) {
    open_connections("in", in);
    open_connections("out", out);
  }
  void connection_opened(bool outbound) { connections_opened(way(outbound)); }
  void connection_closed(bool outbound, ec reason) { connections_closed(way(outbound), reason); }
  /// Counts a refused inbound connection, handshake, frame or message.
  void count_refused_input(ec reason) {
    refused_inputs(reason);
    refused_so_far_[static_cast<std::size_t>(reason)].fetch_add(1, std::memory_order_relaxed);
  }
  /// Since the start, by reason.
  [[nodiscard]] std::uint64_t refused_so_far(ec reason) const {
    return refused_so_far_[static_cast<std::size_t>(reason)].load(std::memory_order_relaxed);
  }
};

} // namespace waggle
