#pragma once

#include <deque>
#include <span>

#include <nlohmann/json_fwd.hpp>

#include "runtime/metrics/metric.hpp"
#include "runtime/status/status_documents.hpp"

namespace waggle {

struct peer_view {
  const peer_picture& picture;
  const peer_facts& own;
  bool trains = picture.training.has_value();
  training_status t = picture.training.value_or(training_status{});
};

/// A value of /api/v1/status. The end of its name says its unit: `waggle status` shows it with
/// that, the page reads it by that name, and its metric, if it has one, is a gauge of the same
/// value. So a new fact is a row, and where it is measured.
struct fact {
  const char* path; // "rounds.failed": {"rounds":{"failed":…}}
  nlohmann::ordered_json (*value)(const peer_view& of); // null: not known, or there is none yet
  const char* help = "";                                // what the name does not say
  /// Those of training are exported by peers that train.
  const char* metric = nullptr;
};
std::span<const fact> facts();

/// The metrics of the facts. Thread-safe, as metrics are. REQUIRES: `where` outlives it.
class fact_gauges {
public:
  explicit fact_gauges(metric_registry& where);
  /// Those that are not known keep their values.
  void show(const peer_view& now);

private:
  using cause = label<"cause", "passes", "starts_late", "sends_slowly", "reduces_slowly", "far",
                      "pauses", "adds_little">;

  std::deque<late_gauge> gauges_; // of the facts that have a metric, in order
  gauge<cause> slow_;
  metric<prometheus::Gauge, false, label<"phase", "warm-up", "cycling", "cool-down">> phase_;
};

} // namespace waggle
