#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>

#include "runtime/core/time.hpp"
#include "runtime/metrics/metric_families.hpp"
#include "runtime/net/http.hpp"

namespace waggle {

/// What a peer serves over HTTP: the metrics, and documents that the metrics exporter keeps up to
/// date. It never sends a request to an actor, so a scrape is answered at once, however busy the
/// peer is. Thread-safe.
class status_board {
public:
  /// The name of the run is shown to this machine only. Requests from others, which have not shown
  /// that they know it, get its tag.
  status_board(std::shared_ptr<metric_families> metrics, std::string run_id)
    : metrics_(std::move(metrics)), run_id_(std::move(run_id)) {}

  /// What stands for the name of a run where it must not be told: "run-1a2b3c4d", the same on all
  /// peers of the run. Takes some milliseconds (run_secret).
  static std::string tag_of(const std::string& run_id);

  void show_status(std::string json);
  void show_peers(std::string json);
  /// Whether the peer may take part in rounds. `text`: the reason if it may not, otherwise an
  /// optional remark.
  void show_readiness(bool ready, std::string text);
  /// Empty: it may.
  [[nodiscard]] std::string why_not_ready() const;

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

  /// GET /metrics, /healthz, /readyz, /api/v1/status, /api/v1/peers; anything else is 404 or 405
  /// with a JSON body (404: with the list of pages).
  [[nodiscard]] net::http_response answer(const net::http_request& request) const;

private:
  [[nodiscard]] net::http_response page(const net::http_request& request) const;
  [[nodiscard]] const std::string& tag() const;

  std::shared_ptr<metric_families> metrics_;
  std::string run_id_;
  mutable std::once_flag tag_made_;
  mutable std::string tag_;
  std::atomic<std::uint64_t> bytes_in_{0};
  std::atomic<std::uint64_t> bytes_out_{0};
  std::atomic<std::uint64_t> bytes_shared_{0};
  mutable std::mutex mutex_;
  std::string status_ = "{}\n";
  std::string peers_ = "{\"peers\":[]}\n";
  bool ready_ = false;
  std::string readiness_ = "starting";
};

} // namespace waggle
