#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "runtime/core/random.hpp"
#include "runtime/net/transport.hpp"

namespace waggle::net {

/// A network in memory, on virtual time, for deterministic simulation (product.md §2.5). The same
/// seed and the same calls give the same deliveries, and so the same `trace_hash`.
///
/// Links are what TCP makes of a bad network: frames arrive whole and in order within a lane
/// (control, bulk), late by a random delay; a lost segment shows as a longer delay; different links
/// overtake each other. Windows and size limits are those of the real transport.
///
/// Single-threaded: everything, the transports included, is called from the harness's thread. The
/// harness alternates between running the actors and `run_until`.
class sim_network {
public:
  struct options {
    std::uint64_t seed = 1;
    milliseconds delay_min{1};
    milliseconds delay_max{20};
    /// Of a frame to be lost once and sent again.
    double loss = 0;
    milliseconds retransmission{200};
    std::size_t window_bytes = 32_MiB;
    /// What each direction of each link carries of bodies; 0: any amount at once.
    std::size_t bytes_per_second = 0;
  };

  explicit sim_network(options opts, steady_time start);
  ~sim_network();
  sim_network(const sim_network&) = delete;
  sim_network& operator=(const sim_network&) = delete;

  using node_index = std::size_t;

  /// A new node that announces `record` with the address `address_of(index)` (none in client mode).
  /// Nodes with different agreements do not link; each node is a process of its own.
  node_index add_node(std::string run_id, peer_record record,
                      std::shared_ptr<const run_agreement> agreement = nullptr);
  [[nodiscard]] std::shared_ptr<transport> transport_of(node_index node);
  [[nodiscard]] static endpoint address_of(node_index node);
  [[nodiscard]] const peer_record& record_of(node_index node) const;

  // -- time ---------------------------------------------------------------------------------------

  [[nodiscard]] steady_time now() const { return now_; }
  [[nodiscard]] std::optional<steady_time> next_event_time() const;
  /// Delivers everything due up to `until`, in order, and moves the clock there.
  void run_until(steady_time until);

  // -- faults ------------------------------------------------------------------------------------

  /// The node's process is gone. Its links are reset, or (silently) just never answer again.
  void crash(node_index node, bool silently = false);
  /// Nothing gets through between `side` and the others until `heal`; what was sent waits.
  void partition(const std::set<node_index>& side);
  void heal();
  /// Breaks all links between two nodes once.
  void reset_links(node_index a, node_index b);

  // -- observation -------------------------------------------------------------------------------

  /// Over all deliveries and link events so far: time, ends, bytes.
  [[nodiscard]] std::uint64_t trace_hash() const { return trace_; }
  [[nodiscard]] std::uint64_t frames_delivered() const { return frames_delivered_; }
  [[nodiscard]] std::uint64_t body_bytes_delivered() const { return body_bytes_delivered_; }

private:
  class node_transport;
  class sim_link;
  struct node;

  using event = std::function<void()>;

  void at(steady_time when, event what);
  steady_time random_arrival();
  [[nodiscard]] bool blocked(node_index a, node_index b) const;
  void dial(node_index from, const endpoint& where, const peer_id& expected, milliseconds timeout,
            on_dialled done);
  /// A sign that is not a frame (window), one random delay later, or held by a partition.
  void travel(node_index from, node_index to, event what);
  void transmit(const std::shared_ptr<sim_link>& from, frame f);
  void schedule_arrival(const std::shared_ptr<sim_link>& from, frame f);
  void arrive(const std::shared_ptr<sim_link>& from, frame f);
  void schedule_close(const std::shared_ptr<sim_link>& from, const failure& why);
  void note(std::uint64_t a, std::uint64_t b, byte_span bytes);

  options options_;
  random_source random_;
  steady_time now_;
  std::map<std::pair<steady_time, std::uint64_t>, event> events_;
  std::uint64_t sequence_ = 0;
  std::vector<std::unique_ptr<node>> nodes_;
  std::set<node_index> side_;
  bool partitioned_ = false;
  std::vector<event> held_; // until heal
  std::uint64_t trace_ = 0xcbf29ce484222325U;
  std::uint64_t frames_delivered_ = 0;
  std::uint64_t body_bytes_delivered_ = 0;
};

} // namespace waggle::net
