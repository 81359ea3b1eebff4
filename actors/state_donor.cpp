// open_state ─► source: get_state_snapshot ─► state_header
// get_state_chunk ─► a range of the snapshot, read from its store ─► state_chunk + body

#include "actors/state_donor.hpp"

#include <algorithm>

#include "actors/guard.hpp"

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
    return open(*wanted, msg.from.id);
  if (const auto* chunk = std::get_if<wire::get_state_chunk>(&msg.what))
    return read(*chunk, msg.from.id);
  return to_caf(ec::protocol_violation, "this is not for a donor");
}

std::size_t state_donor::downloads(const peer_id& except) const {
  std::size_t n = 0;
  for (const auto& [content, snapshot] : snapshots_)
    for (const auto& [peer, state] : snapshot.readers)
      n += state.downloads && peer != except ? 1 : 0;
  return n;
}

/// Each snapshot holds a model's worth of memory or disk. Those that nobody downloads go first.
void state_donor::make_room() {
  while (snapshots_.size() > config_.downloads_max + 1) {
    auto idle = snapshots_.end();
    for (auto it = snapshots_.begin(); it != snapshots_.end(); ++it) {
      const auto& in = it->second.readers;
      bool used =
        std::any_of(in.begin(), in.end(), [](const auto& r) { return r.second.downloads; });
      if (!used && (idle == snapshots_.end() || it->second.used < idle->second.used))
        idle = it;
    }
    if (idle == snapshots_.end())
      return;
    snapshots_.erase(idle);
  }
}

caf::result<outbound_answer> state_donor::open(const wire::open_state& wanted,
                                               const peer_id& reader) {
  if (opening_.size() >= config_.offers_max)
    return to_caf(ec::overloaded, "enough peers wait for this one's state");
  opening_.insert(reader);
  auto promise = make_response_promise<outbound_answer>();
  request(source_, config_.snapshot_timeout, get_state_snapshot{wanted.branch, wanted.epoch_min})
    .then(
      [this, reader, promise](state_snapshot& made) mutable {
        promise.deliver(outbound_answer{offer(std::move(made), reader), {}});
      },
      [this, reader, promise](caf::error& why) mutable {
        close(reader);
        promise.deliver(std::move(why));
      });
  return promise;
}

/// The source has made a snapshot for `reader`.
wire::state_header state_donor::offer(state_snapshot made, const peer_id& reader) {
  close(reader);
  const auto content = made.content;
  wire::state_header header{made.epoch, content, made.parameters, made.state->size(),
                            config_.chunk_bytes};
  // Older snapshots go with their last reader: each holds a model's worth of memory or disk.
  std::erase_if(snapshots_, [&](const auto& entry) {
    return entry.first != content && entry.second.readers.empty();
  });
  auto& snapshot = snapshots_[content];
  snapshot.content = std::move(made);
  snapshot.used = now();
  snapshot.readers[reader] = {now(), false};
  make_room();
  return header;
}

/// One request of `reader` to open a state is done, and with it whatever it read before.
void state_donor::close(const peer_id& reader) {
  if (auto found = opening_.find(reader); found != opening_.end())
    opening_.erase(found);
  for (auto& [content, snapshot] : snapshots_)
    snapshot.readers.erase(reader);
}

caf::result<outbound_answer> state_donor::read(const wire::get_state_chunk& what,
                                               const peer_id& reader) {
  auto found = snapshots_.find(what.content);
  if (found == snapshots_.end())
    return to_caf(ec::not_found, "this state is not offered any more");
  auto& snapshot = found->second;
  const auto& bytes = snapshot.content.state;
  auto begin = std::uint64_t{what.index} * config_.chunk_bytes;
  if (begin >= bytes->size())
    return to_caf(ec::protocol_violation, "there is no such chunk");
  auto known = snapshot.readers.find(reader);
  bool downloads = known != snapshot.readers.end() && known->second.downloads;
  if (!downloads) {
    if (this->downloads(reader) >= config_.downloads_max)
      return to_caf(ec::overloaded, "enough peers download from this one");
    ctx_.log_caused("downloads", now(), spdlog::level::info,
                    "peer " + short_name(reader) + " downloads our state of epoch "
                      + to_string(snapshot.content.epoch));
  }
  snapshot.used = now();
  snapshot.readers[reader] = {now(), true};
  auto size = std::min<std::size_t>(config_.chunk_bytes, bytes->size() - begin);
  auto body = bytes->piece(begin, size, *ctx_.encoded_parts);
  if (!body) {
    ctx_.log->error("cannot read the copy of our state: {}", to_string(body.error()));
    return to_caf(body.error());
  }
  // Chunks are asked for in ascending order: a peer that gets the last one makes room for another.
  if (begin + size == bytes->size())
    snapshot.readers.erase(reader);
  ctx_.metrics->count_state_bytes("out", static_cast<double>(size));
  return outbound_answer{wire::state_chunk{what.index}, *std::move(body)};
}

void state_donor::drop_idle() {
  auto idle = [this](steady_time since) { return now() - since >= config_.snapshot_idle; };
  for (auto& [content, snapshot] : snapshots_)
    std::erase_if(snapshot.readers, [&](const auto& reader) { return idle(reader.second.asked); });
  std::erase_if(snapshots_, [&](const auto& entry) {
    return entry.second.readers.empty() && idle(entry.second.used);
  });
}

} // namespace waggle
