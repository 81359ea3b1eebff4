#pragma once

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "actors/links/switchboard.hpp"
#include "runtime/wire/convert.hpp"
#include "tests/support/actor_test.hpp"
#include "tests/support/sim_network.hpp"

namespace waggle::testing {
/// Command to a recording service: answer the calls that it kept.
struct answer_kept_calls {};
} // namespace waggle::testing
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(waggle::testing::answer_kept_calls)

namespace waggle::testing {

/// Switchboards of several peers on one in-memory network, on one thread and one virtual clock.
/// Frames move and timers run only in `run_for` and `ask_for`.
class network_test : public actor_test {
protected:
  explicit network_test(net::sim_network::options options = {})
    : network(options, sched.clock().now()) {}
  ~network_test() override { end_actors(); } // their links point into the network

  struct peer {
    net::sim_network::node_index node = 0;
    node_context ctx;
    wired_switchboard_actor board;

    [[nodiscard]] const peer_id& id() const { return ctx.record.id; }
  };

  /// A peer with the identity of `seed`, listening at `sim_network::address_of(its node)`.
  peer& add_peer(std::uint64_t seed, switchboard_config config = {}, std::string run_id = "test",
                 bool client_mode = false) {
    auto made = std::make_unique<peer>();
    made->ctx = test_context(seed, wall, run_id);
    made->ctx.record.client_mode = client_mode;
    made->node = network.add_node(run_id, made->ctx.record);
    made->ctx.record = network.record_of(made->node);
    auto transport = network.transport_of(made->node);
    made->board = spawn<switchboard>(made->ctx, config, transport);
    listen(*made);
    peers.push_back(std::move(made));
    return *peers.back();
  }

  void listen(const peer& who) {
    auto accept = [board = who.board](std::shared_ptr<net::link> link) {
      caf::anon_send(board, link_arrived{std::move(link)});
    };
    ASSERT_TRUE(network.transport_of(who.node)->listen({net::sim_network::address_of(who.node)},
                                                       std::move(accept)));
  }

  /// Runs frames, timers and actors for `dt`.
  void run_for(std::chrono::nanoseconds dt) {
    auto until = network.now() + dt;
    for (bool more = true; more;) {
      settle();
      auto target = until;
      if (auto next = network.next_event_time())
        target = std::min(target, *next);
      const auto& timers = sched.clock().schedule();
      if (!timers.empty())
        target = std::min(target, timers.begin()->first);
      target = std::max(target, network.now());
      more = target < until;
      wall->advance(target - network.now());
      network.run_until(target);
      sched.advance_time(target - sched.clock().now());
      settle();
    }
  }

  /// Sends a request and advances the time by at most `limit`, until there is an answer.
  template <class Answer, class Handle, class Question>
  result<Answer> ask_for(std::chrono::nanoseconds limit, const Handle& receiver,
                         Question question) {
    auto answer = ask_later<Answer>(receiver, std::move(question));
    auto until = network.now() + limit;
    while (!answer.answered() && network.now() < until)
      run_for(std::chrono::milliseconds{1});
    return answer.get();
  }

  net::sim_network network;
  std::vector<std::unique_ptr<peer>> peers;
};

using recording_service_actor = service_actor::extend<caf::reacts_to<answer_kept_calls>>;

/// A service that answers calls with `answer` and keeps the messages it receives.
struct received_by_service {
  std::vector<inbound_call> calls;
  std::vector<inbound_event> events;
  result<outbound_answer> answer = outbound_answer{wire::dht_pong{}, {}};
  bool silent = false; // calls are kept, not answered
  std::vector<caf::typed_response_promise<outbound_answer>> kept;
  recording_service_actor service;
};

inline recording_service_actor::behavior_type
recording_service(recording_service_actor::pointer self,
                  std::shared_ptr<received_by_service> book) {
  book->service = caf::actor_cast<recording_service_actor>(self);
  auto answer = [book]() -> caf::result<outbound_answer> {
    if (!book->answer)
      return to_caf(book->answer.error());
    return *book->answer;
  };
  return {
    [self, book, answer](const inbound_call& msg) -> caf::result<outbound_answer> {
      book->calls.push_back(msg);
      if (!book->silent)
        return answer();
      book->kept.push_back(self->make_response_promise<outbound_answer>());
      return book->kept.back();
    },
    [book](const inbound_event& msg) {
      book->events.push_back(msg);
      msg.release();
    },
    [book](answer_kept_calls) {
      for (auto& promise : std::exchange(book->kept, {}))
        promise.deliver(book->answer ? *book->answer : outbound_answer{});
    },
  };
}

/// The peers that connected and disconnected, in order.
struct received_by_listener {
  std::vector<peer_record> connected;
  std::vector<peer_disconnected> disconnected;
};

inline link_listener_actor::behavior_type
recording_link_listener(link_listener_actor::pointer, std::shared_ptr<received_by_listener> book) {
  return {
    [book](const peer_connected& msg) { book->connected.push_back(msg.peer); },
    [book](const peer_disconnected& msg) { book->disconnected.push_back(msg); },
  };
}

} // namespace waggle::testing
