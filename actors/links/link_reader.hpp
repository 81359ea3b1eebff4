#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <string>

#include <caf/all.hpp>

#include "actors/actors.hpp"
#include "actors/node_context.hpp"

namespace waggle {

/// Event to the link: a frame arrived that is not about a round.
struct frame_arrived {
  result<wire::message> message;
  payload body;
  std::shared_ptr<void> ticket; // as in inbound_event
};
/// Event to the link: the connection ended.
struct connection_ended {
  failure why;
};
using frame_listener_actor =
  caf::typed_actor<caf::reacts_to<frame_arrived>, caf::reacts_to<connection_ended>>;

/// What the I/O thread and a peer_link tell each other. Thread-safe.
struct link_traffic {
  // Our open requests: those for a piece of a state, and all.
  std::atomic<std::size_t> chunks_asked{0};
  std::atomic<std::size_t> asked{0};
  std::atomic<std::uint64_t> frames{0};
  std::atomic<steady_time::rep> received{0}; // the last frame
  std::atomic<steady_time::rep> used{0};     // the last one that was not a ping or pong
};

/// Distributes the frames of one connection, on the I/O thread: frames about a round directly to
/// the round_registry, all others to `link`, which is held weakly because the connection may
/// outlive it. What a stranger sends is charged to its budget.
class link_reader final : public net::link_listener {
public:
  link_reader(caf::weak_actor_ptr link, std::shared_ptr<net::link> connection,
              const node_context& ctx, caf::actor_clock& clock,
              std::shared_ptr<link_traffic> traffic, std::shared_ptr<net::link_budget> budget);

  std::shared_ptr<std::byte> body_memory(const std::string& header, std::size_t bytes) override;
  bool zero_copy_ok(const std::string& header, std::size_t bytes) override;
  std::shared_ptr<void> long_header(std::size_t bytes) override;
  void on_frame(net::frame f) override;
  void on_overhead(std::size_t frames, std::size_t header_bytes) override;
  void on_close(failure why) override;

private:
  const wire::part* announced_part(const std::string& header, std::size_t bytes);
  bool is_stranger();

  caf::weak_actor_ptr link_;
  std::weak_ptr<net::link> connection_;
  peer_record remote_;
  std::shared_ptr<round_registry> rounds_;
  std::shared_ptr<metric_families> metrics_;
  caf::actor_clock& clock_;
  std::shared_ptr<link_traffic> traffic_;
  std::shared_ptr<net::link_budget> budget_;
  bool is_member_ = false;                         // has averaged with us; stays true
  std::optional<result<wire::message>> announced_; // of the body that is being read
};

} // namespace waggle
