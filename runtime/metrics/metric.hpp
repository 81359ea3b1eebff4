#pragma once

#include <array>
#include <cstddef>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include <prometheus/counter.h>
#include <prometheus/family.h>
#include <prometheus/gauge.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>

#include "runtime/core/error.hpp"

namespace waggle {

inline constexpr std::array rpc_seconds{0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1., 3., 10.};
inline constexpr std::array round_seconds{0.01, 0.03, 0.1, 0.3, 1., 3., 10., 30., 100., 300.};
inline constexpr std::array small_counts{1., 2., 4., 8., 16., 32., 64.};

/// A text, or the name of an error code.
struct label_value {
  label_value(const char* x) : text(x) {}
  label_value(std::string_view x) : text(x) {}
  label_value(ec code) : text(to_string(code)) {}

  std::string text;
};

struct label {
  const char* name;
  /// Exported, as zero, before anything is counted. Other values appear when they are counted.
  std::vector<label_value> from_start = {};
};

/// Where metrics are registered, with the constant label `run`. It must outlive them.
struct metric_registry {
  prometheus::Registry& registry;
  std::string run_id;
};

/// A metric with N labels. Thread-safe. Label values come from closed sets, never from the network.
template <class Metric, std::size_t N, bool FromStart = true>
class metric {
public:
  template <class... L>
  metric(const metric_registry& where, const char* name, const char* help, const L&... labels)
    : metric(where, name, help, std::array<double, 0>{}, labels...) {}
  template <std::size_t Buckets, class... L>
  metric(const metric_registry& where, const char* name, const char* help,
         const std::array<double, Buckets>& buckets, const L&... labels)
    : family_(prometheus::detail::Builder<Metric>{}
                .Name(name)
                .Help(help)
                .Labels({{"run", where.run_id}})
                .Register(where.registry)),
      labels_{labels.name...}, buckets_(buckets.begin(), buckets.end()) {
    static_assert(sizeof...(labels) == N);
    if (FromStart)
      add_all({}, {labels...});
  }

  /// The series with these values, in the order of the labels.
  template <class... Values>
  Metric& at(const Values&... values) const {
    static_assert(sizeof...(values) == N);
    prometheus::Labels series;
    [[maybe_unused]] auto name = labels_.begin();
    (series.emplace(*name++, label_value{values}.text), ...);
    return add(series);
  }

private:
  Metric& add(const prometheus::Labels& series) const {
    if constexpr (std::is_same_v<Metric, prometheus::Histogram>)
      return family_.Add(series, buckets_);
    else
      return family_.Add(series);
  }
  /// Adds all combinations of the labels' values.
  void add_all(const prometheus::Labels& chosen, const std::vector<label>& labels) const {
    if (chosen.size() == N)
      return void(add(chosen));
    const auto& next = labels[chosen.size()];
    for (const auto& value : next.from_start) {
      auto series = chosen;
      series.emplace(next.name, value.text);
      add_all(series, labels);
    }
  }

  prometheus::Family<Metric>& family_;
  std::array<const char*, N> labels_;
  std::vector<double> buckets_;
};

template <std::size_t N = 0>
using counter = metric<prometheus::Counter, N>;
template <std::size_t N = 0>
using gauge = metric<prometheus::Gauge, N>;
template <std::size_t N = 0>
using histogram = metric<prometheus::Histogram, N>;
/// Not exported before it is set.
using late_gauge = metric<prometheus::Gauge, 0, false>;

} // namespace waggle
