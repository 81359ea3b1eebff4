#pragma once

#include <gmock/gmock.h>

#include "actors/links/peer_link.hpp"
#include "runtime/wire/convert.hpp"
#include "tests/runtime/averaging/plans.hpp"
#include "tests/support/network_test.hpp"
#include "tests/support/rounds.hpp"

namespace waggle::testing {

/// A connection with the test at its other end.
class scripted_link final : public net::link {
public:
  explicit scripted_link(peer_record remote) : remote_(std::move(remote)) {}

  [[nodiscard]] const peer_record& remote() const override { return remote_; }
  [[nodiscard]] bool outbound() const override { return true; }
  void start(std::shared_ptr<net::link_listener> listener) override {
    listener_ = std::move(listener);
  }
  bool send(net::frame f) override {
    if (full)
      return false;
    auto message = wire::decode(f.header, f.body.size);
    EXPECT_TRUE(message) << "we sent a message that the peer would refuse";
    if (message)
      sent.push_back(*message);
    return true;
  }
  void grant(std::size_t bytes) override { granted += bytes; }
  [[nodiscard]] net::link_facts facts() const override {
    return {.reads = read,
            .body_bytes_written = written,
            .unsent_bytes = unsent,
            .unsent_background_bytes = unsent_bodies};
  }
  [[nodiscard]] bool idle() const override { return !busy; }
  void hold(bool on) override { held = on; }
  void close(failure why) override {
    if (!closed)
      closed = std::move(why);
  }

  void arrive(const wire::message& what, payload body = {}) {
    listener_->on_frame({wire::encode(what), std::move(body)});
  }
  void arrive_raw(std::string header, payload body = {}) {
    listener_->on_frame({std::move(header), std::move(body)});
  }
  std::shared_ptr<std::byte> announce(const wire::message& what, std::size_t bytes) {
    return listener_->body_memory(wire::encode(what), bytes);
  }
  std::shared_ptr<void> announce_header(std::size_t bytes) { return listener_->long_header(bytes); }
  /// So many frames arrive that are not messages.
  void arrive_overhead(std::size_t frames) { listener_->on_overhead(frames, 0); }
  void end(failure why) {
    auto listener = std::exchange(listener_, nullptr); // it may own this object
    listener->on_close(std::move(why));
  }

  /// All messages of one kind that were sent over the link.
  template <class Message>
  std::vector<Message> sent_of() const {
    std::vector<Message> out;
    for (const auto& message : sent)
      if (const auto* one = std::get_if<Message>(&message))
        out.push_back(*one);
    return out;
  }

  bool full = false;
  bool busy = false;
  bool held = false;
  std::vector<wire::message> sent;
  std::size_t granted = 0;
  std::uint64_t read = 0;
  std::uint64_t written = 0; // of bodies
  std::size_t unsent = 0;
  std::size_t unsent_bodies = 0;
  std::optional<failure> closed;

private:
  peer_record remote_;
  std::shared_ptr<net::link_listener> listener_;
};

inline link_owner_actor::behavior_type
recording_owner(link_owner_actor::pointer, std::shared_ptr<std::vector<link_down>> downs) {
  return {[downs](const link_down& msg) { downs->push_back(msg); }, [](const record_changed&) {}};
}

inline payload some_bytes(std::size_t size) {
  std::vector<std::byte> bytes(size, std::byte{7});
  return copy_to_payload(bytes);
}

inline record progress_of(std::uint64_t seed, const node_context& ctx) {
  record entry{.kind = record_kind::progress,
               .name = "progress",
               .value = "v",
               .expiration = ctx.wall->now() + 10s};
  sign_record(ctx.run_id, *identity::from_seed(seed), entry);
  return entry;
}

class PeerLink : public actor_test {
protected:
  void SetUp() override {
    config.inbound_calls_max = 4;
    config.budget.waiting_bytes_max = 1_KiB;
    service_table services;
    for (std::size_t topic = 0; topic < service_topics; ++topic) {
      books.push_back(std::make_shared<received_by_service>());
      services.set({static_cast<service_topic>(topic), spawn(recording_service, books.back())});
    }
    owner = spawn(recording_owner, downs);
    link = spawn<peer_link>(ctx, config, wire_end, std::uint64_t{42}, owner, services);
  }

  received_by_service& book(service_topic topic) { return *books[static_cast<std::size_t>(topic)]; }

  pending<peer_answer> call(milliseconds timeout = 3s) {
    return ask_later<peer_answer>(link, call_over_link{wire::dht_ping{}, timeout});
  }
  void arrive(const wire::message& what, payload body = {}) {
    wire_end->arrive(what, std::move(body));
    settle();
  }
  void answer_pings() {
    if (auto pings = wire_end->sent_of<wire::ping>(); !pings.empty())
      arrive(wire::pong{pings.back().nonce});
  }
  void end_link(failure why) {
    wire_end->end(std::move(why));
    settle();
  }
  std::uint64_t last_call_id() const { return wire_end->sent_of<wire::call>().back().id; }
  double refused(const std::string& reason) const {
    return exported(*ctx.metrics, "waggle_network_refused_total{reason=\"" + reason + "\"");
  }

  node_context ctx = test_context(1, wall);
  link_config config;
  std::shared_ptr<scripted_link> wire_end = std::make_shared<scripted_link>(test_peer(2));
  std::vector<std::shared_ptr<received_by_service>> books;
  std::shared_ptr<std::vector<link_down>> downs = std::make_shared<std::vector<link_down>>();
  link_owner_actor owner;
  wired_peer_link_actor link;
};

} // namespace waggle::testing
