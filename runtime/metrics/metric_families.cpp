#include "runtime/metrics/metric_families.hpp"

#include <algorithm>

#include <prometheus/text_serializer.h>

namespace waggle {

metric_families::metric_families(std::shared_ptr<prometheus::Registry> registry,
                                 const std::string& run, const std::string& peer)
  : metric_registry(std::move(registry), run, peer),
    peer_metrics(static_cast<metric_registry&>(*this)),
    dht_metrics(static_cast<metric_registry&>(*this)),
    round_metrics(static_cast<metric_registry&>(*this)),
    network_metrics(static_cast<metric_registry&>(*this)),
    state_metrics(static_cast<metric_registry&>(*this)),
    training_metrics(static_cast<metric_registry&>(*this)),
    process_metrics(static_cast<metric_registry&>(*this)) {}

std::string metric_families::text() const {
  auto differs = [this](const prometheus::ClientMetric::Label& label) {
    return (label.name == "peer" && label.value != peer())
           || (label.name == "run" && label.value != run());
  };
  auto all = registry()->Collect();
  for (auto& family : all)
    if (family.name.starts_with("waggle_"))
      std::erase_if(family.metric,
                    [&](const auto& series) { return std::ranges::any_of(series.label, differs); });
  std::erase_if(all, [](const auto& family) { return family.metric.empty(); });
  auto process = usage();
  all.insert(all.end(), process.begin(), process.end());
  return prometheus::TextSerializer{}.Serialize(all);
}

} // namespace waggle
