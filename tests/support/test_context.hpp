#pragma once

#include <algorithm>
#include <memory>
#include <string>
#include <type_traits>

#include <caf/send.hpp>
#include <prometheus/registry.h>
#include <spdlog/logger.h>
#include <spdlog/sinks/null_sink.h>

#include "actors/node_context.hpp"

namespace waggle::testing {

/// Swarm time that changes only when a test sets it. Not thread-safe: for tests on one thread.
class manual_clock final : public wall_clock {
public:
  [[nodiscard]] swarm_time now() const override { return now_; }
  void advance(swarm_clock::duration by) { now_ += by; }
  void set(swarm_time now) { now_ = now; }

private:
  swarm_time now_{std::chrono::hours{24 * 365 * 50}}; // about 2020
};

inline std::shared_ptr<spdlog::logger> silent_log() {
  auto log =
    std::make_shared<spdlog::logger>("test", std::make_shared<spdlog::sinks::null_sink_st>());
  log->set_level(spdlog::level::off);
  return log;
}

/// The peer with the identity of `seed`, dialled at "peer-<seed>:7700".
inline peer_record test_peer(std::uint64_t seed) {
  auto who = identity::from_seed(seed);
  return {who->id(), who->key(), {{"peer-" + std::to_string(seed), 7700}}, false};
}

/// The context of an actor of the peer with the identity of `seed`: the record of that peer, the
/// clock that the test moves, a registry of its own, no log.
inline node_context test_context(std::uint64_t seed, std::shared_ptr<const wall_clock> wall,
                                 std::string run_id = "test") {
  node_context ctx;
  ctx.run_id = std::move(run_id);
  ctx.self = identity::from_seed(seed);
  ctx.record = test_peer(seed);
  ctx.wall = std::move(wall);
  ctx.verifier = make_plain_verifier();
  ctx.metrics = std::make_shared<metric_families>(std::make_shared<prometheus::Registry>(),
                                                  ctx.run_id, short_name(ctx.record.id));
  ctx.log = silent_log();
  ctx.links = std::make_shared<link_table>();
  ctx.rounds = make_round_registry(ctx.links, ctx.strangers);
  ctx.vectors = vector_pool::make(4);
  ctx.encoded_parts = buffer_pool::make(4_MiB);
  ctx.make_store = [] { return make_memory_store(); };
  ctx.seed = seed;
  return ctx;
}

/// Passes on an event of another peer as link_reader does: about a round to the registry, the rest
/// to `service` (or nowhere).
template <class Service>
void deliver(const node_context& ctx, const Service& service, const inbound_event& event,
             steady_time now) {
  if (round_of(event.what) != nullptr)
    ctx.rounds->deliver(event, now);
  else if constexpr (!std::is_null_pointer_v<Service>)
    caf::anon_send(service, event);
}

/// The value of the exported series with this name and, if given, this label, e.g.
/// `waggle_network_refused_total{reason="malformed"`; the sum if several series match, 0 if none
/// does.
inline double exported(const metric_families& metrics, const std::string& series) {
  auto brace = series.find('{');
  auto name = series.substr(0, brace);
  auto label = brace == std::string::npos ? std::string{} : series.substr(brace + 1);
  double sum = 0;
  auto text = metrics.text();
  for (std::size_t at = 0; at < text.size();) {
    auto end = std::min(text.find('\n', at), text.size());
    auto line = text.substr(at, end - at);
    auto labels = line.find_first_of("{ ");
    if (line.compare(0, labels, name) == 0 && line.find(label) != std::string::npos)
      sum += std::stod(line.substr(line.rfind(' ') + 1));
    at = end + 1;
  }
  return sum;
}

} // namespace waggle::testing
