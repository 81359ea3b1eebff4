// open_state ─► source: get_state_snapshot ─► state_header
// get_state_chunk ─► a range of the snapshot, read from its store ─► state_chunk + body

#include "actors/state_donor.hpp"

#include <algorithm>

#include "actors/guard.hpp"

namespace waggle {

namespace {

using self_pointer = state_donor_impl::stateful_pointer<state_donor_state>;

std::size_t readers(const state_donor_state& st, const peer_id& except) {
  auto n = st.opening.size();
  for (const auto& [content, snapshot] : st.snapshots)
    for (const auto& [peer, when] : snapshot.readers)
      n += peer == except ? 0 : 1;
  return n;
}

/// Ends one pending open_state of `reader`, and any download that it had before.
void close(self_pointer self, const peer_id& reader) {
  auto& opening = self->state.opening;
  if (auto found = opening.find(reader); found != opening.end())
    opening.erase(found);
  for (auto& [content, snapshot] : self->state.snapshots)
    snapshot.readers.erase(reader);
}

caf::result<outbound_answer> open(self_pointer self, const node_context& ctx,
                                  const donor_config& config, const snapshot_source_actor& source,
                                  const wire::open_state& wanted, const peer_id& reader) {
  if (readers(self->state, reader) >= config.downloads_max)
    return to_caf(ec::overloaded, "too many peers download from this one");
  self->state.opening.insert(reader);
  auto promise = self->make_response_promise<outbound_answer>();
  self
    ->request(source, config.snapshot_timeout, get_state_snapshot{wanted.branch, wanted.epoch_min})
    .then(
      [self, ctx, config, reader, promise](state_snapshot& made) mutable {
        auto& snapshots = self->state.snapshots;
        close(self, reader);
        const auto content = made.content;
        wire::state_header header{made.epoch, content, made.parameters, made.state->size(),
                                  config.chunk_bytes};
        // Older snapshots go with their last reader: each holds a model's worth of memory or disk.
        std::erase_if(snapshots, [&](const auto& entry) {
          return entry.first != content && entry.second.readers.empty();
        });
        auto& snapshot = snapshots[content];
        snapshot.content = std::move(made);
        snapshot.used = snapshot.readers[reader] = self->clock().now();
        ctx.log->info("peer {} downloads our state of epoch {}", short_name(reader),
                      header.epoch.value());
        promise.deliver(outbound_answer{header, {}});
      },
      [self, reader, promise](caf::error& why) mutable {
        close(self, reader);
        promise.deliver(std::move(why));
      });
  return promise;
}

caf::result<outbound_answer> read(self_pointer self, const node_context& ctx,
                                  const donor_config& config, const wire::get_state_chunk& what,
                                  const peer_id& reader) {
  auto found = self->state.snapshots.find(what.content);
  if (found == self->state.snapshots.end())
    return to_caf(ec::not_found, "this state is not offered any more");
  auto& snapshot = found->second;
  const auto& bytes = snapshot.content.state;
  auto begin = std::uint64_t{what.index} * config.chunk_bytes;
  if (begin >= bytes->size())
    return to_caf(ec::protocol_violation, "there is no such chunk");
  if (!snapshot.readers.contains(reader) && readers(self->state, reader) >= config.downloads_max)
    return to_caf(ec::overloaded, "too many peers download from this one");
  snapshot.used = snapshot.readers[reader] = self->clock().now();
  auto size = std::min<std::size_t>(config.chunk_bytes, bytes->size() - begin);
  auto body = bytes->piece(begin, size, *ctx.encoded_parts);
  if (!body) {
    ctx.log->error("cannot read the copy of our state: {}", to_string(body.error()));
    return to_caf(body.error());
  }
  // Chunks are requested in ascending order, so the last one frees the reader's slot.
  if (begin + size == bytes->size())
    snapshot.readers.erase(reader);
  ctx.metrics->count_state_bytes("out", static_cast<double>(size));
  return outbound_answer{wire::state_chunk{what.index}, *std::move(body)};
}

} // namespace

state_donor_impl::behavior_type state_donor(self_pointer self, node_context ctx,
                                            donor_config config, snapshot_source_actor source) {
  end_on_exception(self, ctx);
  self->delayed_send(self, config.snapshot_idle / 4, drop_idle_snapshots{});
  return {
    [self, ctx, config, source](const inbound_call& msg) -> caf::result<outbound_answer> {
      if (const auto* wanted = std::get_if<wire::open_state>(&msg.what))
        return open(self, ctx, config, source, *wanted, msg.from.id);
      if (const auto* chunk = std::get_if<wire::get_state_chunk>(&msg.what))
        return read(self, ctx, config, *chunk, msg.from.id);
      return to_caf(ec::protocol_violation, "this is not for a donor");
    },
    [](const inbound_event& msg) { msg.release(); },
    [self, config](drop_idle_snapshots again) {
      auto now = self->clock().now();
      for (auto& [content, snapshot] : self->state.snapshots)
        std::erase_if(snapshot.readers, [&](const auto& reader) {
          return now - reader.second >= config.snapshot_idle;
        });
      std::erase_if(self->state.snapshots, [&](const auto& entry) {
        return entry.second.readers.empty() && now - entry.second.used >= config.snapshot_idle;
      });
      self->delayed_send(self, config.snapshot_idle / 4, again);
    },
  };
}

} // namespace waggle
