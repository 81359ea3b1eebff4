#pragma once

#include <algorithm>

#include "runtime/metrics/metric.hpp"

namespace waggle {

/// The process: restarts of its actors, and the pages that it serves.
class process_metrics {
public:
  explicit process_metrics(metric_registry& registry) : in_(registry) {}

  void count_actor_restart(std::string_view actor) { restarts_.at(actor).Increment(); }
  /// `target` may be any string of an untrusted client; an unknown route counts as "other".
  void count_http_request(std::string_view target, int code, double seconds) {
    target = target.substr(0, target.find('?'));
    if (target.starts_with(api_pages))
      target = api_pages;
    auto known = std::find(routes.begin(), routes.end(), target);
    std::string_view route = known == routes.end() ? "other" : *known;
    http_requests_.at(route, std::to_string(code)).Increment();
    http_seconds_.at(route).Observe(seconds);
  }

  /// process_*: the standard names, read from /proc.
  [[nodiscard]] static std::vector<prometheus::MetricFamily> usage();

private:
  static constexpr std::string_view api_pages = "/api/v1/"; // one route: each costs six series
  static constexpr std::array<std::string_view, 4> routes{"/metrics", "/healthz", "/readyz",
                                                          api_pages};
  static constexpr std::array answer_seconds{0.05, 0.5}; // scrape budget: 50 ms

  metric_registry& in_;
  label route_{"route", {routes.begin(), routes.end()}};
  counter<1> restarts_{in_, "waggle_actor_restarts_total", "Actors restarted by the node.",
                       label{"actor"}};
  counter<2> http_requests_{in_, "waggle_http_requests_total",
                            "HTTP requests by route and status code.", route_,
                            label{"code", {"200"}}};
  histogram<1> http_seconds_{in_, "waggle_http_request_duration_seconds",
                             "Time to answer an HTTP request.", answer_seconds, route_};
};

} // namespace waggle
