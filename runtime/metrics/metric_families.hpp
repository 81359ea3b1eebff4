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

/// Every metric that a peer exports, in one registry. The name, help text and labels of each stand
/// in the class of its subject, below the methods that set it. No other code contains a metric's
/// name, except dashboards/, which a test compares with these classes. Thread-safe.
class metric_families : public peer_metrics,
                        public dht_metrics,
                        public round_metrics,
                        public network_metrics,
                        public state_metrics,
                        public training_metrics,
                        public process_metrics {
public:
  metric_families(std::shared_ptr<prometheus::Registry> registry, const std::string& run_id);

  /// Text exposition format 0.0.4 of the whole registry.
  [[nodiscard]] std::string text() const;
  [[nodiscard]] const std::shared_ptr<prometheus::Registry>& registry() const { return registry_; }

private:
  std::shared_ptr<prometheus::Registry> registry_;
};

} // namespace waggle
