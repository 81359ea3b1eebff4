#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include <spdlog/logger.h>

#include "runtime/allreduce/round_engine.hpp"
#include "runtime/allreduce/round_registry.hpp"
#include "runtime/core/buffer_pool.hpp"
#include "runtime/core/byte_store.hpp"
#include "runtime/core/endpoint.hpp"
#include "runtime/core/random.hpp"
#include "runtime/core/time.hpp"
#include "runtime/core/vector_pool.hpp"
#include "runtime/crypto/identity.hpp"
#include "runtime/metrics/metric_families.hpp"
#include "runtime/net/link_table.hpp"

namespace waggle {

class bandwidth_estimator; // runtime/averaging/bandwidth_estimator.hpp

/// A registry that answers those who missed the end of a round over their link.
inline std::shared_ptr<round_registry> make_round_registry(std::shared_ptr<net::link_table> links) {
  return std::make_shared<round_registry>(
    round_registry::limits{}, [links = std::move(links)](const peer_record& to, wire::event what) {
      links->tell(to.id, what, {});
    });
}

/// Seam: what stands between a round and the world, e.g. a test that breaks it. Called once a
/// round.
using round_port_decorator =
  std::function<std::shared_ptr<round_port>(std::shared_ptr<round_port>)>;

/// What every actor of one peer is given: who we are and the dependencies to the world. Immutable,
/// shared by value; everything it points to is thread-safe. There are no globals, so that several
/// peers live in one process.
struct node_context {
  std::string run_id;
  std::shared_ptr<const identity> self;
  peer_record record; // how others reach us; no addresses in client mode
  std::shared_ptr<const wall_clock> wall;
  std::shared_ptr<const signature_verifier> verifier;
  std::shared_ptr<metric_families> metrics;
  std::shared_ptr<spdlog::logger> log;
  std::shared_ptr<net::link_table> links; // of the connected peers
  std::shared_ptr<round_registry> rounds;
  /// For vectors that are averaged: what lies in them travels to peers on this host without a copy.
  std::shared_ptr<vector_pool> vectors;
  /// The same for parts that are encoded.
  std::shared_ptr<buffer_pool> encoded_parts;
  round_port_decorator port_decorator; // may be empty
  /// For copies of states, which are too large to be kept in memory.
  byte_store_factory make_store;
  /// What our connection to other machines carries. Null: nobody measures it.
  std::shared_ptr<bandwidth_estimator> line;
  std::uint64_t seed = 0;

  /// The source of randomness for the actor that `name` names.
  [[nodiscard]] random_source randomness(std::string_view name) const {
    return random_source{seed}.fork(name);
  }
};

} // namespace waggle
