#include "waggle/state.hpp"

#include <algorithm>
#include <thread>

#include "actors/service/running_node.hpp"
#include "actors/state/state_fetcher.hpp"
#include "runtime/core/epoch_limit.hpp"
#include "runtime/core/random.hpp"

namespace waggle {

namespace {

constexpr std::size_t name_bytes_max = 200;
constexpr auto publish_timeout = 60s; // hashing a large state
constexpr milliseconds lookup_timeout = 10s;
constexpr milliseconds look_again_max = 2s;

/// Whether a donor may yet be found after this failure: its record is under way, or those found
/// first are older, or gone.
bool may_come(ec why) {
  return why == ec::no_donor || why == ec::not_found || why == ec::epoch_mismatch
         || why == ec::not_ready || why == ec::unreachable || why == ec::peer_lost
         || why == ec::shutting_down;
}

const state_publisher_actor& publisher_of(running_node& peer) {
  std::lock_guard guard{peer.states_mutex};
  if (!peer.states) {
    caller_thread here;
    peer.states = peer.system->spawn<state_publisher, caf::detached>(peer.node);
  }
  return peer.states;
}

} // namespace

result<shared_state> shared_state::of(const node& peer, std::string name) {
  if (name.empty() || name.size() > name_bytes_max)
    return failure{ec::bad_config, "the name of a state has 1 to 200 bytes"};
  return shared_state{peer.running(), std::move(name)};
}

status shared_state::donate(std::uint64_t version, std::span<const std::byte> bytes) {
  if (bytes.empty())
    return failure{ec::wrong_shape, "there is nothing to donate: the state is empty"};
  if (version > epoch_max) // it travels as an epoch, and votes refuse later ones
    return failure{ec::bad_config, "the version must be at most 2^48"};
  if (peer_->node.board->has_ended())
    return failure{ec::shutting_down, "this peer has left the run"};
  auto told = peer_->ask<caf::unit_t>(publisher_of(*peer_), publish_timeout,
                                      publish_state{name_, version, copy_to_payload(bytes)});
  return told ? status{done{}} : status{told.error()};
}

result<fetched_version> shared_state::fetch(std::uint64_t version_min,
                                            std::chrono::milliseconds timeout,
                                            std::uint64_t bytes_max) const {
  if (auto valid = check_timeout(timeout, "timeout"); !valid)
    return valid.error();
  const auto& node = peer_->node;
  auto until = std::chrono::steady_clock::now() + timeout;
  auto left = timeout;
  for (auto pause = 50ms;; pause = std::min(2 * pause, look_again_max)) {
    auto got = fetch_now(version_min, std::max(left, milliseconds{1}), bytes_max);
    left = std::chrono::ceil<milliseconds>(until - std::chrono::steady_clock::now());
    if (got || !may_come(got.error().code) || left <= 50ms || node.board->has_ended())
      return got;
    std::this_thread::sleep_for(std::min(pause, left / 2));
  }
}

/// From those that say now that they have it.
result<fetched_version> shared_state::fetch_now(std::uint64_t version_min,
                                                std::chrono::milliseconds timeout,
                                                std::uint64_t bytes_max) const {
  auto until = std::chrono::steady_clock::now() + timeout;
  const auto& node = peer_->node;
  find_records who{record_kind::owned, state_publisher::key_of(name_), true,
                   std::min(timeout, lookup_timeout)};
  auto found = peer_->ask<found_records>(node.parts.dht, who.timeout + dht_margin, who);
  if (!found)
    return found.error();
  fetch_state question;
  question.donors = state_publisher::donors_in(*found, version_min, node.ctx.record.id);
  // They are sorted by key: else all peers would ask the same ones, and a key could be made to fit.
  random_source{entropy_seed()}.shuffle(question.donors);
  question.branch = state_publisher::branch_of(name_);
  question.epoch_min = epoch_id{version_min};
  question.deadline = std::max(
    milliseconds{1}, std::chrono::ceil<milliseconds>(until - std::chrono::steady_clock::now()));
  if (question.donors.empty())
    return failure{ec::no_donor, "no other peer has version " + std::to_string(version_min) + " of "
                                   + name_ + ", or a later one"};
  fetch_config how;
  how.download.bytes_max = bytes_max;
  how.compare = state_comparison::content;
  caller_thread here;
  auto fetcher = peer_->system->spawn<state_fetcher>(node.ctx, how, node.parts.switchboard);
  auto got = peer_->ask<fetched_state>(fetcher, question.deadline + 1s, question);
  caf::anon_send_exit(fetcher, caf::exit_reason::user_shutdown);
  if (!got)
    return got.error();
  fetched_version out{got->epoch.value(), std::vector<std::byte>(got->state->size()), got->donor};
  if (auto read = got->state->read(0, out.bytes); !read)
    return read.error();
  return out;
}

} // namespace waggle
