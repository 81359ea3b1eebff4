#include "runtime/metrics/metric_families.hpp"

#include <prometheus/text_serializer.h>

namespace waggle {

metric_families::metric_families(std::shared_ptr<prometheus::Registry> registry,
                                 const std::string& run_id)
  : peer_metrics({*registry, run_id}), dht_metrics({*registry, run_id}),
    round_metrics({*registry, run_id}), network_metrics({*registry, run_id}),
    state_metrics({*registry, run_id}), training_metrics({*registry, run_id}),
    process_metrics({*registry, run_id}), registry_(std::move(registry)) {}

std::string metric_families::text() const {
  auto all = registry_->Collect();
  auto process = usage();
  all.insert(all.end(), process.begin(), process.end());
  return prometheus::TextSerializer{}.Serialize(all);
}

} // namespace waggle
