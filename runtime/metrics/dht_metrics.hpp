#pragma once

#include "runtime/metrics/metric.hpp"

namespace waggle {

/// The DHT: this peer's table and records, its requests and lookups.
class dht_metrics {
  metric_registry& in_;
  // Each bound makes five series.
  static constexpr std::array answer_seconds{0.001, 0.01, 0.03, 0.1, 0.3, 1., 3.};
  static constexpr std::array hops{1., 2., 4., 8.}; // a lookup among a million peers takes about 5

public:
  explicit dht_metrics(metric_registry& registry) : in_(registry) {}

  using request = label<"op", "ping", "find", "store">;
  using lookup = label<"op", "get", "put">;

  gauge<> dht_entries{in_, "waggle_dht_routing_table_entries", "Peers in the routing table."};
  gauge<> dht_records{in_, "waggle_dht_records", "Records stored here."};
  gauge<> dht_bytes{in_, "waggle_dht_storage_bytes", "Bytes of the records stored here."};
  counter<request, label<"direction", "in", "out">,
          some_codes<1, "outcome", ec::none, ec::timeout, ec::peer_lost, ec::unreachable,
                     ec::shutting_down, ec::overloaded, ec::not_ready, ec::protocol_violation>>
    dht_requests{in_, "waggle_dht_requests_total",
                 "DHT requests by operation, direction and outcome."};
  histogram<request> observe_dht_request{in_, "waggle_dht_request_duration_seconds",
                                         "Time to the answer of one DHT request.", answer_seconds};
  histogram<lookup> dht_lookup_seconds{in_, "waggle_dht_lookup_duration_seconds",
                                       "Time of a complete lookup.", answer_seconds};
  histogram<lookup> dht_lookup_hops{in_, "waggle_dht_lookup_hops",
                                    "Rounds of queries that a lookup took.", hops};
  counter<
    some_codes<5, "reason", ec::bad_signature, ec::bad_expiry, ec::oversize, ec::stale_record,
               ec::not_owner, ec::malformed, ec::wrong_run, ec::overloaded, ec::protocol_violation>>
    count_dht_rejected{in_, "waggle_dht_records_rejected_total",
                       "Records from the network that were refused, by reason."};

  void set_dht(double routing_entries, double records, double record_bytes) {
    dht_entries(routing_entries);
    dht_records(records);
    dht_bytes(record_bytes);
  }
  /// One that this peer sent.
  void count_dht_request(request op, ec outcome) { dht_requests(op, "out", outcome); }
  void count_dht_request_answered(request op) { dht_requests(op, "in", ec::none); }
  void observe_dht_lookup(lookup op, double seconds, double rounds) {
    dht_lookup_seconds(op, seconds);
    dht_lookup_hops(op, rounds);
  }
};

} // namespace waggle
