#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

#include <prometheus/counter.h>
#include <prometheus/family.h>
#include <prometheus/gauge.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>

#include "runtime/core/check.hpp"
#include "runtime/core/error.hpp"

namespace waggle {

inline constexpr std::array rpc_seconds{0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1., 3., 10.};
inline constexpr std::array round_seconds{0.01, 0.03, 0.1, 0.3, 1., 3., 10., 30., 100., 300.};
/// Of rounds among near peers, most take a few milliseconds; over slow links, minutes.
inline constexpr std::array short_round_seconds{0.001, 0.003, 0.01, 0.03, 0.1, 0.3,
                                                1.,    3.,    10.,  60.,  300.};
inline constexpr std::array small_counts{1., 2., 4., 8., 16., 32., 64.};

/// A text as a template argument.
template <std::size_t N>
struct literal {
  constexpr literal(const char (&text)[N]) { std::copy_n(text, N, chars); }

  char chars[N]{};
};

/// A value of the label `Name`: one of `Words`, which are all that it can have. The series of the
/// first `FromStart` are exported, as zero, before anything is counted.
template <std::size_t FromStart, literal Name, literal... Words>
class some_words {
public:
  static constexpr const char* name = Name.chars;
  static constexpr std::size_t size = sizeof...(Words), from_start = FromStart;
  [[nodiscard]] static std::string_view text(std::size_t number) { return words[number]; }

  /// Another word does not compile.
  consteval some_words(const char* word) : number_(find(word)) {
    if (number_ == size)
      throw std::invalid_argument{word};
  }
  /// Another word is "other"; if the label has no such value, this is a bug.
  some_words(std::string_view word) : number_(std::min(find(word), find("other"))) {
    WAGGLE_CHECK(number_ < size, word);
  }
  /// REQUIRES: number < size.
  explicit constexpr some_words(std::size_t number) : number_(number) {}
  [[nodiscard]] constexpr std::size_t number() const { return number_; }

private:
  static constexpr std::array<std::string_view, size> words{Words.chars...};
  static constexpr std::size_t find(std::string_view word) {
    return static_cast<std::size_t>(std::find(words.begin(), words.end(), word) - words.begin());
  }

  std::size_t number_;
};
template <literal Name, literal... Words>
using label = some_words<sizeof...(Words), Name, Words...>;

/// A value of the label `Name`: one of these error codes, or "other".
template <std::size_t FromStart, literal Name, ec... Codes>
class some_codes {
public:
  static constexpr const char* name = Name.chars;
  static constexpr std::size_t size = sizeof...(Codes) + 1, from_start = FromStart;
  [[nodiscard]] static std::string_view text(std::size_t number) {
    return number < codes.size() ? to_string(codes[number]) : "other";
  }

  constexpr some_codes(ec code) : number_(numbers[static_cast<std::size_t>(code)]) {}
  [[nodiscard]] constexpr std::size_t number() const { return number_; }

private:
  static constexpr std::array<ec, sizeof...(Codes)> codes{Codes...};
  static constexpr auto numbers = [] {
    std::array<std::uint8_t, ec_max + std::size_t{1}> all{};
    all.fill(codes.size());
    for (std::uint8_t i = 0; i < codes.size(); ++i)
      all[static_cast<std::size_t>(codes[i])] = i;
    return all;
  }();

  std::size_t number_;
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
    inside_.fetch_or(withdrawn, std::memory_order_acq_rel);
    while (inside_.load(std::memory_order_acquire) != withdrawn)
      std::this_thread::yield(); // who is inside only counts
    std::lock_guard guard{mutex_};
    for (const auto& remove : removals_)
      remove();
    removals_.clear();
  }

  [[nodiscard]] const std::shared_ptr<prometheus::Registry>& registry() const { return registry_; }
  [[nodiscard]] const std::string& run() const { return labels_.at("run"); }
  [[nodiscard]] const std::string& peer() const { return labels_.at("peer"); }

  /// While it lives, the series are not removed. False if they have been.
  class visit {
  public:
    explicit visit(metric_registry& where) : where_(where.enter() ? &where : nullptr) {}
    visit(const visit&) = delete;
    visit& operator=(const visit&) = delete;
    ~visit() {
      if (where_ != nullptr)
        where_->inside_.fetch_sub(1, std::memory_order_release);
    }
    explicit operator bool() const { return where_ != nullptr; }

  private:
    metric_registry* const where_;
  };

  /// Adds a series. REQUIRES: `mutex()` is held, and the peer's series have not been removed.
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
  [[nodiscard]] std::mutex& mutex() { return mutex_; }

private:
  static constexpr std::uint32_t withdrawn = 1U << 31U;

  bool enter() {
    if ((inside_.load(std::memory_order_relaxed) & withdrawn) != 0)
      return false;
    if ((inside_.fetch_add(1, std::memory_order_acquire) & withdrawn) == 0)
      return true;
    inside_.fetch_sub(1, std::memory_order_relaxed);
    return false;
  }

  const std::shared_ptr<prometheus::Registry> registry_;
  const prometheus::Labels labels_;
  std::atomic<std::uint32_t> inside_{0}; // visits, and `withdrawn`
  std::mutex mutex_;
  std::vector<std::function<void()>> removals_; // of all series
};

/// A metric with labels, each of a type like `label` whose values are numbers. So its series stand
/// in a table, and to count takes a few atomic operations (of a histogram, a mutex of its own).
/// Only the first use of a series that was not exported from the start locks. Thread-safe.
/// REQUIRES: `where` outlives it.
template <class Metric, bool FromStart, class... Labels>
class metric {
public:
  metric(metric_registry& where, const char* name, const char* help,
         std::span<const double> buckets = {})
    : where_(where), family_(prometheus::detail::Builder<Metric>{}.Name(name).Help(help).Register(
                       *where.registry())),
      buckets_(buckets.begin(), buckets.end()) {
    for (std::size_t place = 0; FromStart && place < series_.size(); ++place) {
      [[maybe_unused]] auto numbers = numbers_at(place);
      std::size_t i = 0;
      if (((numbers[i++] < Labels::from_start) && ... && true))
        make(place);
    }
  }

  /// Counts (one, unless `value` says more), sets or observes in the series of these labels. Does
  /// nothing if the peer's series have been removed.
  void operator()(Labels... labels, double value) {
    metric_registry::visit visit{where_};
    if (!visit)
      return;
    auto& series = at(labels...);
    if constexpr (std::is_same_v<Metric, prometheus::Counter>)
      series.Increment(value);
    else if constexpr (std::is_same_v<Metric, prometheus::Gauge>)
      series.Set(value);
    else
      series.Observe(value);
  }
  void operator()(Labels... labels) requires std::is_same_v<Metric, prometheus::Counter> {
    (*this)(labels..., 1);
  }
  /// Exports the series before anything is counted.
  void show(Labels... labels) {
    if (metric_registry::visit visit{where_})
      at(labels...);
  }

private:
  Metric& at(Labels... labels) {
    std::size_t place = 0;
    ((place = place * Labels::size + labels.number()), ...);
    auto* made = series_[place].load(std::memory_order_acquire);
    return made != nullptr ? *made : *make(place);
  }
  /// The number of each label's value; that of the last label changes from place to place. (One
  /// element more than labels, because there may be none.)
  static std::array<std::size_t, sizeof...(Labels) + 1> numbers_at(std::size_t place) {
    constexpr std::array<std::size_t, sizeof...(Labels) + 1> sizes{Labels::size...};
    std::array<std::size_t, sizeof...(Labels) + 1> numbers{};
    for (std::size_t i = sizeof...(Labels); i-- > 0; place /= sizes[i])
      numbers[i] = place % sizes[i];
    return numbers;
  }
  Metric* make(std::size_t place) {
    std::lock_guard guard{where_.mutex()};
    if (auto* made = series_[place].load(std::memory_order_relaxed))
      return made;
    prometheus::Labels labels;
    [[maybe_unused]] auto numbers = numbers_at(place);
    std::size_t i = 0;
    (labels.emplace(Labels::name, Labels::text(numbers[i++])), ...);
    Metric* made = nullptr;
    if constexpr (std::is_same_v<Metric, prometheus::Histogram>)
      made = where_.add(family_, std::move(labels), buckets_);
    else
      made = where_.add(family_, std::move(labels));
    series_[place].store(made, std::memory_order_release);
    return made;
  }

  metric_registry& where_;
  prometheus::Family<Metric>& family_;
  const std::vector<double> buckets_;
  std::array<std::atomic<Metric*>, (Labels::size * ... * std::size_t{1})> series_{};
};

template <class... Labels>
using counter = metric<prometheus::Counter, true, Labels...>;
template <class... Labels>
using gauge = metric<prometheus::Gauge, true, Labels...>;
template <class... Labels>
using histogram = metric<prometheus::Histogram, true, Labels...>;
/// Not exported before it is set.
using late_gauge = metric<prometheus::Gauge, false>;

/// A gauge that is always 1; what it says stands in its labels. Not exported before.
class info {
public:
  info(metric_registry& where, const char* name, const char* help)
    : where_(where),
      family_(prometheus::BuildGauge().Name(name).Help(help).Register(*where.registry())) {}

  /// Once. REQUIRES: nothing that a peer of another run chose.
  void show(const prometheus::Labels& what) {
    std::lock_guard guard{where_.mutex()};
    where_.add(family_, what)->Set(1);
  }

private:
  metric_registry& where_;
  prometheus::Family<prometheus::Gauge>& family_;
};

} // namespace waggle
