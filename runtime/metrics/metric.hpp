#pragma once

#include <array>
#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
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
/// Of rounds among near peers, most take a few milliseconds; over slow links, minutes.
inline constexpr std::array short_round_seconds{0.001, 0.003, 0.01, 0.03, 0.1, 0.3,
                                                1.,    3.,    10.,  60.,  300.};
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

/// The part of a prometheus::Registry that belongs to one peer. The labels `run` and `peer` stand
/// on its series, not on the families, so that all peers of a process can share a registry, also
/// those of several runs, and each takes its own series with it when it leaves. Thread-safe.
class metric_registry {
public:
  metric_registry(std::shared_ptr<prometheus::Registry> registry, const std::string& run,
                  const std::string& peer)
    : registry_(std::move(registry)), labels_{{"run", run}, {"peer", peer}} {}
  ~metric_registry() { withdraw(); }
  metric_registry(const metric_registry&) = delete;
  metric_registry& operator=(const metric_registry&) = delete;

  /// Removes all series of this peer. What is counted later is lost.
  void withdraw() {
    std::lock_guard guard{mutex_};
    withdrawn_ = true;
    for (const auto& remove : removals_)
      remove();
    removals_.clear();
  }

  [[nodiscard]] const std::shared_ptr<prometheus::Registry>& registry() const { return registry_; }
  [[nodiscard]] const std::string& run() const { return labels_.at("run"); }
  [[nodiscard]] const std::string& peer() const { return labels_.at("peer"); }

private:
  template <class, std::size_t, bool>
  friend class metric;

  /// Throws std::runtime_error if the series exists: then it belongs to another peer of this name.
  template <class Metric, class... Buckets>
  Metric* add(prometheus::Family<Metric>& family, prometheus::Labels series,
              const Buckets&... buckets) {
    series.insert(labels_.begin(), labels_.end());
    if (family.Has(series))
      throw std::runtime_error{family.GetName() + " of peer " + peer() + " exists already"};
    auto* made = &family.Add(series, buckets...);
    removals_.emplace_back([&family, made] { family.Remove(made); });
    return made;
  }

  const std::shared_ptr<prometheus::Registry> registry_;
  const prometheus::Labels labels_;
  std::mutex mutex_;
  bool withdrawn_ = false;
  std::vector<std::function<void()>> removals_; // of all series
};

/// A series, for the duration of one statement: it cannot be removed meanwhile. Does nothing if the
/// peer's series have been removed.
template <class Metric>
class live_series {
public:
  live_series(std::unique_lock<std::mutex> lock, Metric* series)
    : lock_(std::move(lock)), series_(series) {}

  void Set(double value) const {
    if (series_ != nullptr)
      series_->Set(value);
  }
  void SetToCurrentTime() const {
    if (series_ != nullptr)
      series_->SetToCurrentTime();
  }
  void Increment(double by = 1) const {
    if (series_ != nullptr)
      series_->Increment(by);
  }
  void Observe(double value) const {
    if (series_ != nullptr)
      series_->Observe(value);
  }

private:
  std::unique_lock<std::mutex> lock_;
  Metric* series_;
};

/// A metric with N labels. Thread-safe. Label values come from closed sets, never from the network.
/// REQUIRES: `where` outlives it.
template <class Metric, std::size_t N, bool FromStart = true>
class metric {
public:
  template <class... L>
  metric(metric_registry& where, const char* name, const char* help, const L&... labels)
    : metric(where, name, help, std::array<double, 0>{}, labels...) {}
  template <std::size_t Buckets, class... L>
  metric(metric_registry& where, const char* name, const char* help,
         const std::array<double, Buckets>& buckets, const L&... labels)
    : where_(where), family_(prometheus::detail::Builder<Metric>{}.Name(name).Help(help).Register(
                       *where.registry())),
      labels_{labels.name...}, buckets_(buckets.begin(), buckets.end()) {
    static_assert(sizeof...(labels) == N);
    if (FromStart)
      add_all({}, 0, {labels...});
  }

  /// The series with these values, in the order of the labels.
  template <class... Values>
  live_series<Metric> at(const Values&... values) {
    static_assert(sizeof...(values) == N);
    std::array<std::string, N> key{label_value{values}.text...};
    std::unique_lock lock{where_.mutex_};
    auto* series = where_.withdrawn_ ? nullptr : find_or_add(key);
    return {std::move(lock), series};
  }

private:
  Metric* find_or_add(const std::array<std::string, N>& values) {
    if (auto found = known_.find(values); found != known_.end())
      return found->second;
    prometheus::Labels series;
    for (std::size_t i = 0; i < N; ++i)
      series.emplace(labels_[i], values[i]);
    Metric* made = nullptr;
    if constexpr (std::is_same_v<Metric, prometheus::Histogram>)
      made = where_.add(family_, std::move(series), buckets_);
    else
      made = where_.add(family_, std::move(series));
    return known_.emplace(values, made).first->second;
  }
  /// Adds all combinations of the labels' values; the first `chosen` of `values` are chosen.
  void add_all(std::array<std::string, N> values, std::size_t chosen,
               const std::vector<label>& labels) {
    if (chosen == N) {
      find_or_add(values);
      return;
    }
    for (const auto& value : labels[chosen].from_start) {
      values[chosen] = value.text;
      add_all(values, chosen + 1, labels);
    }
  }

  metric_registry& where_;
  prometheus::Family<Metric>& family_;
  std::array<const char*, N> labels_;
  std::vector<double> buckets_;
  std::map<std::array<std::string, N>, Metric*> known_; // guarded by the lock of `where_`
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
