#pragma once

#include <memory>

#include "runtime/metrics/dht_metrics.hpp"
#include "runtime/metrics/network_metrics.hpp"
#include "runtime/metrics/peer_metrics.hpp"
#include "runtime/metrics/process_metrics.hpp"
#include "runtime/metrics/round_metrics.hpp"
#include "runtime/metrics/state_metrics.hpp"
#include "runtime/metrics/training_metrics.hpp"

namespace waggle {

/// Every metric that a peer exports, in the class of its subject. It is called to count, set or
/// observe; those that change together have a method. No other code contains a metric's name,
/// except runtime/status/facts.cpp, and dashboards/, which a test compares with both. Thread-safe.
class metric_families : public metric_registry,
                        public peer_metrics,
                        public dht_metrics,
                        public round_metrics,
                        public network_metrics,
                        public state_metrics,
                        public training_metrics,
                        public process_metrics {
public:
  /// @param run the tag of the run: a scraper need not learn its name.
  /// Throws std::exception if the registry cannot take the metrics, e.g. because a running peer has
  /// the same labels there.
  metric_families(std::shared_ptr<prometheus::Registry> registry, const std::string& run,
                  const std::string& peer);

  /// Text exposition format 0.0.4 of the registry, without the series of other peers, which have
  /// pages of their own.
  [[nodiscard]] std::string text() const;
};

} // namespace waggle
