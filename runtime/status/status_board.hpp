#pragma once

#include <array>
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "runtime/core/result.hpp"
#include "runtime/core/time.hpp"
#include "runtime/metrics/metric_families.hpp"
#include "runtime/net/http.hpp"
#include "runtime/status/event_maker.hpp"
#include "runtime/status/facts.hpp"
#include "runtime/status/live_page.hpp"
#include "runtime/status/peer_status.hpp"
#include "runtime/watch/event_ring.hpp"

namespace waggle {

class run_curves; // run_curves.hpp

/// What a peer serves over HTTP: the metrics, and documents that the metrics exporter keeps up to
/// date. It never sends a request to an actor, so a scrape is answered at once, however busy the
/// peer is. Thread-safe.
class status_board {
public:
  /// @param events, curves null: empty ones of its own.
  explicit status_board(std::shared_ptr<metric_families> metrics,
                        std::shared_ptr<event_ring> events = nullptr,
                        page_audience pages = page_audience::all,
                        std::shared_ptr<const run_curves> curves = nullptr);

  enum class document : std::uint8_t {
    self, // who this peer is: {"peer","run","role","version"}. Shown to those that watch
    status,
    peers,
    targets
  };
  void show(document what, std::string json);
  /// The status, and its metrics. @param now when it was true.
  void show(const peer_view& status, swarm_time now);
  /// For the loop of this process, which must not wait for the trainer.
  void show_training(const training_status& now) {
    training_ = std::make_shared<const training_status>(now);
  }
  /// At most some 100 ms old, but of the present phase; null: none yet.
  [[nodiscard]] std::shared_ptr<const training_status> training() const { return training_; }
  /// Whether the peer may take part in rounds. `text`: the reason if it may not, otherwise an
  /// optional remark.
  void show_readiness(bool ready, std::string text);
  /// Empty: it may.
  [[nodiscard]] std::string why_not_ready() const;
  /// Waits until it may. Fails with ec::timeout and the reason why not, or with ec::shutting_down
  /// once the peer has ended.
  [[nodiscard]] status wait_until_ready(milliseconds timeout) const;
  void end();
  [[nodiscard]] bool has_ended() const { return ended_; }

  /// Of this start of the peer. For the actor that keeps the documents up to date, alone.
  [[nodiscard]] event_maker& maker() { return maker_; }

  /// Bytes since the start, for the status document: on the wire, and through memory shared with
  /// peers on this host (both ways).
  void count_bytes(bool outbound, std::size_t bytes) {
    (outbound ? bytes_out_ : bytes_in_).fetch_add(bytes, std::memory_order_relaxed);
  }
  void count_shared_bytes(std::size_t bytes) {
    bytes_shared_.fetch_add(bytes, std::memory_order_relaxed);
  }
  [[nodiscard]] std::uint64_t bytes_in() const { return bytes_in_.load(std::memory_order_relaxed); }
  [[nodiscard]] std::uint64_t bytes_out() const {
    return bytes_out_.load(std::memory_order_relaxed);
  }
  [[nodiscard]] std::uint64_t bytes_shared() const {
    return bytes_shared_.load(std::memory_order_relaxed);
  }

  /// Seconds that the others' clocks are ahead of this machine's.
  void set_clock_skew(double seconds) { clock_skew_ = seconds; }
  [[nodiscard]] double clock_skew() const { return clock_skew_; }

  /// Of a peer of several processes, in their order.
  void show_ranks(std::vector<rank_pace> all) {
    std::lock_guard guard{mutex_};
    ranks_ = std::move(all);
  }
  [[nodiscard]] std::vector<rank_pace> ranks() const {
    std::lock_guard guard{mutex_};
    return ranks_;
  }

  /// Whether the page at `/` and its events are for requests from this machine, or another one.
  [[nodiscard]] bool shows_pages(bool local) const {
    return pages_ == page_audience::all || (pages_ == page_audience::local && local);
  }

  /// GET /, /metrics, /healthz, /readyz, /sd, /api/v1/status, /api/v1/peers, /api/v1/rounds (the
  /// last 64), /api/v1/curves[?points=N] (run_curves::json) and /api/v1/events (event_stream, as
  /// server-sent events); anything else is 404 or 405 with a JSON body (404: with the list of
  /// pages). The documents name the run to this machine
  /// only; others, which have not shown that they know the name, get its tag (run_tag). Metrics
  /// have the tag for everybody: a run that is scraped from several machines must not have two
  /// names.
  [[nodiscard]] net::http_response answer(const net::http_request& request) const;

private:
  [[nodiscard]] net::http_response page(const net::http_request& request) const;
  [[nodiscard]] net::http_response stream(const net::http_request& request) const;
  [[nodiscard]] net::http_response curves(std::string_view query) const;
  [[nodiscard]] const std::string& shown(document what) const {
    return documents_[static_cast<std::size_t>(what)];
  }
  [[nodiscard]] std::string rounds() const;
  [[nodiscard]] std::string vitals() const;
  [[nodiscard]] std::string snapshot() const;
  void hide_run(std::string& json) const;

  std::shared_ptr<metric_families> metrics_;
  fact_gauges gauges_;
  std::shared_ptr<event_ring> events_;
  std::shared_ptr<const run_curves> curves_;
  const page_audience pages_;
  event_maker maker_;
  symptom_times since_;
  std::atomic<std::uint64_t> bytes_in_{0};
  std::atomic<std::uint64_t> bytes_out_{0};
  std::atomic<std::uint64_t> bytes_shared_{0};
  std::atomic<double> clock_skew_{0};
  std::atomic<std::shared_ptr<const training_status>> training_;
  std::atomic<bool> ended_{false}; // set with mutex_ held
  mutable std::mutex mutex_;
  mutable std::condition_variable changed_; // ready_ or ended_
  std::array<std::string, 4> documents_{"{}", "{}\n", "{\"peers\":[]}\n", "[]\n"};
  swarm_time now_{}; // of the status
  std::vector<rank_pace> ranks_;
  bool ready_ = false;
  std::string readiness_ = "starting";
};

} // namespace waggle
