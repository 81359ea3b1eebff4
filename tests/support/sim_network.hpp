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
#include "runtime/crypto/member_list.hpp"
#include "runtime/net/clock_offset.hpp"
#include "runtime/net/transport.hpp"

namespace waggle::net {

/// A network in memory, on virtual time, for deterministic simulation. The same seed and the same
/// calls give the same deliveries, and so the same `trace_hash`.
///
/// Links behave like TCP over a bad network: frames arrive complete and in order within a lane
/// (control, bulk), after a random delay; a lost segment appears as a longer delay; frames of
/// different links may be reordered. Windows and size limits are those of the real transport.
///
/// Single-threaded: everything, the transports included, is called from the harness's thread. The
/// harness alternates between running the actors and `run_until`.
class sim_network {
public:
  struct options {
    std::uint64_t seed = 1;
    milliseconds delay_min{1};
    milliseconds delay_max{20};
    /// Probability that a frame is lost once and sent again.
    double loss = 0;
    milliseconds retransmission{200};
    std::size_t window_bytes = 32_MiB;
    /// Bandwidth for bodies in each direction of each link; 0: unlimited.
    std::size_t bytes_per_second = 0;
  };

  explicit sim_network(options opts, steady_time start);
  ~sim_network();
  sim_network(const sim_network&) = delete;
  sim_network& operator=(const sim_network&) = delete;

  using node_index = std::size_t;

  /// A new node that announces `record` with the address `address_of(index)` (none in client mode).
  /// Nodes with different agreements do not link. Each node counts as a separate process.
  node_index add_node(std::string run_id, peer_record record,
                      std::shared_ptr<const run_agreement> agreement = nullptr);
  /// The clock of a node, which handshakes compare. Without one it links with all others.
  struct node_clock {
    std::shared_ptr<const wall_clock> time;
    clock_limits limits{};
    /// May be empty; net_events::clock_compared.
    std::function<void(const peer_id&, swarm_clock::duration)> compared;
  };
  void set_clock(node_index node, node_clock clock);
  /// Who belongs to the run, as this node knows it; handshakes compare it. Null: everybody.
  void set_members(node_index node, std::shared_ptr<run_members> members);
  [[nodiscard]] std::shared_ptr<transport> transport_of(node_index node);
  [[nodiscard]] static endpoint address_of(node_index node);
  [[nodiscard]] const peer_record& record_of(node_index node) const;

  // -- time ---------------------------------------------------------------------------------------

  [[nodiscard]] steady_time now() const { return now_; }
  [[nodiscard]] std::optional<steady_time> next_event_time() const;
  /// Delivers everything due up to `until`, in order, and moves the clock there.
  void run_until(steady_time until);

  // -- faults ------------------------------------------------------------------------------------

  /// The node's process has ended. Its links are reset, or (silently) never answer again.
  void crash(node_index node, bool silently = false);
  /// No frames pass between `side` and the other nodes until `heal`; frames sent meanwhile wait.
  void partition(const std::set<node_index>& side);
  void heal();
  /// No frames ever pass between these two: each reaches the others.
  void keep_apart(node_index a, node_index b);
  /// Breaks all links between two nodes once.
  void reset_links(node_index a, node_index b);

  // -- observation -------------------------------------------------------------------------------

  /// Over all deliveries and link events so far: time, ends, bytes.
  [[nodiscard]] std::uint64_t trace_hash() const { return trace_; }
  [[nodiscard]] std::uint64_t body_bytes_delivered() const { return body_bytes_delivered_; }

private:
  class node_transport;
  class sim_link;
  struct node;

  using event = std::function<void()>;

  void at(steady_time when, event what);
  steady_time random_arrival();
  [[nodiscard]] bool blocked(node_index a, node_index b) const;
  /// The reason why one of the two refuses the link.
  std::optional<failure> compare_members(node_index from, node_index to) const;
  std::optional<failure> compare_clocks(node_index from, node_index to);
  void dial(node_index from, const dial_target& to, milliseconds timeout, on_dialled done);
  /// Delivers something that is not a frame (a window update) after one random delay, or after the
  /// partition has healed.
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
  std::set<std::pair<node_index, node_index>> apart_; // the smaller one first
  std::vector<event> held_;                           // delivered after `heal`
  std::uint64_t trace_ = 0xcbf29ce484222325U;
  std::uint64_t body_bytes_delivered_ = 0;
};

} // namespace waggle::net
