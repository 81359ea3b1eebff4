#include "waggle/state.hpp"

#include "actors/service/running_node.hpp"
#include "actors/service/state_search.hpp"
#include "runtime/core/epoch_limit.hpp"
#include "runtime/core/try.hpp"

namespace waggle {

namespace {

constexpr std::size_t name_bytes_max = 200;

} // namespace

const state_publisher_actor& publisher_of(running_node& peer) {
  std::lock_guard guard{peer.states_mutex};
  if (!peer.states) {
    caller_thread here;
    peer.states = peer.system->spawn<state_publisher, caf::detached>(peer.node);
  }
  return peer.states;
}

status publish(running_node& peer, publish_state what) {
  if (peer.node.board->has_ended())
    return failure{ec::shutting_down, "this peer has left the run"};
  auto told = peer.ask<caf::unit_t>(publisher_of(peer), publish_timeout, std::move(what));
  return told ? status{done{}} : status{told.error()};
}

result<fetched_version> fetch_published(running_node& peer, state_query wanted) {
  WAGGLE_TRY(valid, check_timeout(wanted.timeout, "timeout"));
  if (peer.node.board->has_ended())
    return failure{ec::shutting_down, "this peer has left the run"};
  caller_thread here;
  auto search = peer.system->spawn<state_search, caf::detached>(peer.node); // it copies the bytes
  auto limit = wanted.timeout + 2s;
  return peer.ask<fetched_version>(search, limit, std::move(wanted));
}

status check_state_name(const std::string& name) {
  if (name.empty() || name.size() > name_bytes_max)
    return failure{ec::bad_config, "the name of a state has 1 to 200 bytes"};
  return done{};
}

result<shared_state> shared_state::of(const node& peer, std::string name) {
  WAGGLE_TRY(valid, check_state_name(name));
  return shared_state{peer.running(), std::move(name)};
}

status check_donation(std::uint64_t version, std::size_t bytes) {
  if (bytes == 0)
    return failure{ec::wrong_shape, "there is nothing to donate: the state is empty"};
  if (version > epoch_max) // it travels as an epoch, and votes refuse later ones
    return failure{ec::bad_config, "the version must be at most 2^48"};
  return done{};
}

status shared_state::donate(std::uint64_t version, std::span<const std::byte> bytes) {
  WAGGLE_TRY(valid, check_donation(version, bytes.size()));
  return publish(*peer_, {name_, version, copy_to_payload(bytes)});
}

result<fetched_version> shared_state::fetch(std::uint64_t version_min,
                                            std::chrono::milliseconds timeout,
                                            std::uint64_t bytes_max) const {
  return fetch_published(*peer_, {name_, version_min, bytes_max, true, timeout});
}

} // namespace waggle
