// open_state ─► source: get_state_snapshot ─► state_header
// get_state_chunk ─► a range of the snapshot, read from its store ─► state_chunk + body

#include "actors/state/state_donor.hpp"

#include <algorithm>

#include "actors/guard.hpp"
#include "runtime/core/log_about.hpp"
#include "runtime/status/run_curves.hpp"

namespace waggle {

state_donor::state_donor(caf::actor_config& cfg, node_context ctx, donor_config config,
                         snapshot_source_actor source)
  : state_donor_base(cfg), ctx_(std::move(ctx)), config_(config), source_(std::move(source)) {
  end_on_exception(this, ctx_);
}

state_donor::behavior_type state_donor::make_behavior() {
  delayed_send(this, config_.snapshot_idle / 4, drop_idle_snapshots{});
  return {
    [this](const inbound_call& msg) { return answer(msg); },
    [](const inbound_event& msg) { msg.release(); },
    [this](drop_idle_snapshots again) {
      drop_idle();
      delayed_send(this, config_.snapshot_idle / 4, again);
    },
  };
}

caf::result<outbound_answer> state_donor::answer(const inbound_call& msg) {
  if (const auto* wanted = std::get_if<wire::open_state>(&msg.what))
    return open(*wanted, msg.from, msg.host);
  if (const auto* chunk = std::get_if<wire::get_state_chunk>(&msg.what))
    return read(*chunk, msg.from.id, msg.host);
  return to_caf(ec::protocol_violation, "this is not for a donor");
}

bool state_donor::is_read(const digest& content) const {
  return std::any_of(readers_.begin(), readers_.end(),
                     [&](const auto& entry) { return entry.second.content == content; });
}

bool state_donor::is_downloaded(const digest& content) const {
  return std::any_of(readers_.begin(), readers_.end(), [&](const auto& entry) {
    return entry.second.downloads && entry.second.content == content;
  });
}

/// Whether `reader` may download. Identities can be made up and hosts cannot: when all slots are
/// taken, the host that has most of them loses one to a host that has at least two fewer.
bool state_donor::take_slot(const peer_id& reader, const std::string& host) {
  std::map<std::string, std::size_t> hosts{{host, 0}};
  std::size_t taken = 0;
  for (const auto& [peer, state] : readers_)
    if (state.downloads && peer != reader) {
      ++hosts[state.host];
      ++taken;
    }
  if (taken < config_.downloads_max)
    return true;
  auto most = std::max_element(hosts.begin(), hosts.end(),
                               [](const auto& a, const auto& b) { return a.second < b.second; });
  if (most->second <= hosts.at(host) + 1)
    return false;
  auto oldest = readers_.end(); // without progress
  for (auto it = readers_.begin(); it != readers_.end(); ++it)
    if (it->second.downloads && it->first != reader && it->second.host == most->first
        && (oldest == readers_.end() || it->second.progressed < oldest->second.progressed))
      oldest = it;
  oldest->second.downloads = false; // its next request is refused, and it asks another donor
  return true;
}

/// Each snapshot holds a model's worth of memory or disk. Of those that nobody downloads, the ones
/// unused for longest go first. A peer downloads at most one, so there is always one that can go.
void state_donor::make_room(const digest& newest) {
  while (snapshots_.size() > config_.downloads_max + 1) {
    auto idle = snapshots_.end();
    for (auto it = snapshots_.begin(); it != snapshots_.end(); ++it)
      if (it->first != newest && !is_downloaded(it->first)
          && (idle == snapshots_.end() || it->second.used < idle->second.used))
        idle = it;
    if (idle == snapshots_.end())
      return;
    std::erase_if(readers_, [&](const auto& r) { return r.second.content == idle->first; });
    snapshots_.erase(idle);
  }
}

caf::result<outbound_answer> state_donor::open(const wire::open_state& wanted,
                                               const peer_record& from, const std::string& host) {
  if (wanted.leaves && wanted.owner != from.id && wanted.owner != ctx_.record.id)
    return to_caf(ec::protocol_violation, "a peer leaves only what is its own");
  const auto& reader = from.id;
  if (!config_.shares)
    return to_caf(ec::no_donor, "this peer gives its state to nobody: --share-state is false");
  auto of_host = std::count_if(opening_.begin(), opening_.end(),
                               [&](const auto& entry) { return entry.second == host; });
  bool host_is_full =
    !host.empty() && static_cast<std::size_t>(of_host) >= config_.offers_per_host_max;
  if (opening_.size() >= config_.offers_max || host_is_full)
    return to_caf(ec::overloaded, "enough peers wait for this one's state");
  // The source still works on a request that its peer has given up.
  if (!opening_.emplace(reader, host).second)
    return to_caf(ec::overloaded, "an earlier request for this state is not done");
  auto promise = make_response_promise<outbound_answer>();
  request(source_, wanted.leaves ? config_.left_timeout : config_.snapshot_timeout,
          get_state_snapshot{wanted.branch, wanted.epoch_min, wanted.owner, from, wanted.leaves})
    .then(
      [this, reader, host, promise](state_snapshot& made) mutable {
        promise.deliver(outbound_answer{offer(std::move(made), reader, host), {}});
      },
      [this, reader, promise](caf::error& why) mutable {
        close(reader);
        promise.deliver(std::move(why));
      });
  return promise;
}

/// The source has made a snapshot for `reader`.
wire::state_header state_donor::offer(state_snapshot made, const peer_id& reader,
                                      const std::string& host) {
  close(reader);
  const auto content = made.content;
  wire::state_header header{made.epoch, content, made.parameters, made.state->size(),
                            config_.chunk_bytes};
  // Older snapshots go with their last reader: each holds a model's worth of memory or disk.
  std::erase_if(snapshots_,
                [&](const auto& entry) { return entry.first != content && !is_read(entry.first); });
  snapshots_[content] = {std::move(made), now()};
  readers_[reader] = {content, host, now(), false, {}, now()};
  make_room(content);
  return header;
}

/// The request of `reader` to open a state is done, and with it whatever it read before.
void state_donor::close(const peer_id& reader) {
  opening_.erase(reader);
  readers_.erase(reader);
}

caf::result<outbound_answer> state_donor::read(const wire::get_state_chunk& what,
                                               const peer_id& reader, const std::string& host) {
  if (what.content.is_zero()) {
    auto curves = ctx_.curves ? ctx_.curves->image(run_curves::points_sent) : std::string{};
    if (curves.empty())
      return to_caf(ec::not_found, "this peer has no curves of the run");
    return outbound_answer{wire::state_chunk{}, copy_to_payload(as_byte_span(curves))};
  }
  auto found = snapshots_.find(what.content);
  if (found == snapshots_.end())
    return to_caf(ec::not_found, "this state is not offered any more");
  auto& snapshot = found->second;
  const auto& bytes = snapshot.content.state;
  auto begin = std::uint64_t{what.index} * config_.chunk_bytes;
  if (begin >= bytes->size())
    return to_caf(ec::protocol_violation, "there is no such chunk");
  auto known = readers_.find(reader);
  bool opened = known != readers_.end() && known->second.content == what.content;
  if (!opened || !known->second.downloads) {
    if (!take_slot(reader, host))
      return to_caf(ec::overloaded, "enough peers download from this one");
    log_about about{{.epoch = snapshot.content.epoch, .remote = reader}};
    ctx_.log_caused("downloads", now(), spdlog::level::info,
                    "peer " + short_name(reader) + " downloads our state of epoch "
                      + to_string(snapshot.content.epoch));
  }
  snapshot.used = now();
  auto& its = readers_[reader];
  if (!opened) // or its offer is an old one
    its = {what.content, host, now(), true, {}, now()};
  its.downloads = true;
  auto size = std::min<std::size_t>(config_.chunk_bytes, bytes->size() - begin);
  auto body = bytes->piece(begin, size, *ctx_.encoded_parts);
  if (!body) {
    ctx_.log->error("cannot read the copy of our state: {}", to_string(body.error()));
    return to_caf(body.error());
  }
  its.given.resize((bytes->size() + config_.chunk_bytes - 1) / config_.chunk_bytes);
  if (!its.given[what.index]) {
    its.given[what.index] = true;
    its.progressed = now();
  }
  // Chunks are asked for in ascending order: a peer that gets the last one makes room for another.
  if (begin + size == bytes->size()) {
    bool all = std::find(its.given.begin(), its.given.end(), false) == its.given.end();
    if (all) // otherwise it may ask for the last one again and again
      ctx_.note(watch::state_moved{true, reader, bytes->size(), seconds_of(now() - its.opened),
                                   snapshot.content.epoch.value(), "complete"});
    readers_.erase(reader);
  }
  ctx_.metrics->count_state_bytes("out", static_cast<double>(size));
  return outbound_answer{wire::state_chunk{what.index}, *std::move(body)};
}

void state_donor::drop_idle() {
  auto idle = [this](steady_time since) { return now() - since >= config_.snapshot_idle; };
  std::erase_if(readers_, [&](const auto& entry) { return idle(entry.second.progressed); });
  std::erase_if(snapshots_, [&](const auto& entry) {
    return idle(entry.second.used) && !is_read(entry.first);
  });
}

} // namespace waggle
