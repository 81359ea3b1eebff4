#pragma once

#include <memory>
#include <string>
#include <vector>

#include "actors/discovery/progress_tracker.hpp"
#include "runtime/crypto/digest.hpp"
#include "tests/support/actor_test.hpp"

namespace waggle::testing {

/// The messages of the tracker, and the answers of the fake DHT.
struct surroundings {
  std::vector<notify_peer> told;
  std::vector<record> stored;
  std::vector<record> in_dht;
  bool dht_fails = false;
  int reads = 0;
  std::vector<swarm_progress> heard; // received by a listener
};

inline switchboard_actor::behavior_type fake_switchboard(switchboard_actor::pointer,
                                                         std::shared_ptr<surroundings> world) {
  return {
    [](const call_peer&) -> caf::result<peer_answer> { return to_caf(ec::unreachable); },
    [world](const notify_peer& msg) { world->told.push_back(msg); },
    [](const connect_address&) -> caf::result<peer_connected> { return to_caf(ec::unreachable); },
  };
}

inline dht_router_actor::behavior_type fake_dht(dht_router_actor::pointer,
                                                std::shared_ptr<surroundings> world) {
  return {
    [](const inbound_call&) -> caf::result<outbound_answer> { return to_caf(ec::internal); },
    [](const inbound_event&) {},
    [world](const store_record& msg) -> caf::result<store_report> {
      if (world->dht_fails)
        return to_caf(ec::timeout);
      world->stored.push_back(msg.entry);
      return store_report{1, 0, 0, ec::none};
    },
    [world](const find_records&) -> caf::result<found_records> {
      ++world->reads;
      if (world->dht_fails)
        return to_caf(ec::timeout);
      return found_records{world->in_dht};
    },
    [](const bootstrap_from&) {},
    [](const peer_connected&) {},
    [](const peer_disconnected&) {},
  };
}

/// Of all peers at the global epoch.
inline std::uint64_t samples_in(const swarm_progress& view) {
  std::uint64_t sum = 0;
  for (const auto& peer : view.peers)
    sum += peer.epoch == view.global_epoch ? peer.samples : 0;
  return sum;
}

inline progress_listener_actor::behavior_type listener(progress_listener_actor::pointer,
                                                       std::shared_ptr<surroundings> world) {
  return {[world](const swarm_progress& view) { world->heard.push_back(view); }};
}

struct ProgressTracker : actor_test {
  std::shared_ptr<surroundings> world = std::make_shared<surroundings>();
  node_context ctx = test_context(1, wall);
  progress_config config;
  switchboard_actor board = spawn(fake_switchboard, world);
  dht_router_actor dht = spawn(fake_dht, world);
  wired_progress_tracker_actor tracker;

  void SetUp() override { start(); }

  void start() {
    tracker = spawn<progress_tracker>(ctx, config, board, dht);
    tell(tracker, subscribe_progress{spawn(listener, world)});
  }

  void report(std::uint64_t epoch, std::uint64_t samples, std::string_view parameters = "p") {
    tell(tracker, report_progress{epoch_id{epoch}, samples, sha256(parameters), {}, 0});
  }
  void connect(std::uint64_t seed) { tell(tracker, peer_connected{test_peer(seed)}); }
  void disconnect(std::uint64_t seed) {
    tell(tracker, peer_disconnected{test_peer(seed).id, {ec::peer_lost, "reset"}});
  }

  /// The report that the peer with the identity of `seed` would push.
  record record_of(std::uint64_t seed, std::uint64_t epoch, std::uint64_t samples,
                   std::string_view run = "test", bool tombstone = false,
                   std::chrono::nanoseconds age = {}) {
    progress_report r{.who = test_peer(seed),
                      .epoch = epoch_id{epoch},
                      .samples = samples,
                      .samples_per_second = 10,
                      .time = wall->now() - age,
                      .parameters = sha256("p")};
    record entry{.kind = record_kind::progress, .name = config.name, .tombstone = tombstone};
    if (!tombstone)
      entry.value = encode_progress(r);
    entry.sequence = static_cast<std::uint64_t>(to_nanoseconds(r.time));
    entry.expiration = r.time + 60s;
    sign_record(run, *identity::from_seed(seed), entry);
    return entry;
  }
  void push(std::uint64_t from, const record& entry) {
    tell(tracker, inbound_event{test_peer(from), wire::progress_push{entry}, {}, nullptr});
  }
  void note(std::uint64_t from, std::uint64_t epoch, std::uint64_t samples,
            const digest& branch = {}) {
    wire::progress_note what{epoch_id{epoch}, branch, samples, 5};
    tell(tracker, inbound_event{test_peer(from), what, {}, nullptr});
  }
  swarm_progress view() {
    return first_event<swarm_progress, subscribe_progress>(tracker).value_or(swarm_progress{});
  }
  /// The content of `r`, as another peer reads it.
  static progress_report read(const record& r) {
    auto got = decode_progress(r.owner, *peer_id::from_raw(r.subkey), r.value);
    EXPECT_TRUE(got);
    return got ? *got : progress_report{};
  }
  /// The events of one kind that were sent.
  template <class Event>
  std::vector<Event> told() const {
    std::vector<Event> all;
    for (const auto& one : world->told)
      if (const auto* event = std::get_if<Event>(&one.what))
        all.push_back(*event);
    return all;
  }
  static record pushed(const notify_peer& told) {
    const auto* push = std::get_if<wire::progress_push>(&told.what);
    return push ? push->entry : record{};
  }
  double refused(ec why) {
    return exported(*ctx.metrics,
                    "waggle_network_refused_total{reason=\"" + std::string{to_string(why)} + "\"");
  }
};

} // namespace waggle::testing
