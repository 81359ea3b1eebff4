#pragma once

#include <algorithm>

#include "runtime/metrics/metric.hpp"

namespace waggle {

/// The process: restarts of its actors, and the pages that it serves.
class process_metrics {
  static constexpr std::string_view api_pages = "/api/v1/"; // one route: each costs six series
  using route = some_words<4, "route", "/metrics", "/healthz", "/readyz", "/api/v1/", "other">;
  static constexpr std::array answer_seconds{0.05, 0.5}; // scrape budget: 50 ms

  metric_registry& in_;

public:
  explicit process_metrics(metric_registry& registry) : in_(registry) {}

  counter<label<"actor", "metrics-exporter", "state-donor">> count_actor_restart{
    in_, "waggle_actor_restarts_total", "Actors restarted by the node."};
  counter<route, some_words<1, "code", "200", "304", "400", "403", "404", "405", "421", "429",
                            "503", "other">>
    http_requests{in_, "waggle_http_requests_total", "HTTP requests by route and status code."};
  histogram<route> http_durations{in_, "waggle_http_request_duration_seconds",
                                  "Time to answer an HTTP request.", answer_seconds};

  /// `target` may be any string of an untrusted client; an unknown route counts as "other".
  void count_http_request(std::string_view target, int code, double seconds) {
    target = target.substr(0, target.find('?'));
    if (target.starts_with(api_pages))
      target = api_pages;
    http_requests(target, std::string_view{std::to_string(code)});
    http_durations(target, seconds);
  }

  /// process_*: the standard names, read from /proc.
  [[nodiscard]] static std::vector<prometheus::MetricFamily> usage();
};

} // namespace waggle
