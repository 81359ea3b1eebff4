// switchboard ─► peer_connected, peer_disconnected ─► known_peers ─► (save_interval) ─► disk

#include "actors/address_book.hpp"

#include <algorithm>
#include <utility>

#include "actors/guard.hpp"

namespace waggle {

namespace {

using self_pointer = address_book_impl::stateful_pointer<address_book_state>;

void save(self_pointer self, const node_context& ctx, const address_book_config& config,
          disk& files) {
  auto& st = self->state;
  if (!st.changed)
    return;
  auto text = st.peers.text(ctx.run_id);
  auto written = files.write(config.file, {as_byte_span(text)});
  if (!written && !st.disk_fails)
    ctx.log->warn("cannot store known peers: {}", to_string(written.error()));
  st.disk_fails = !written;
  st.changed = !written;
}

void save_later(self_pointer self, const address_book_config& config) {
  if (!std::exchange(self->state.save_due, true))
    self->delayed_send(self, config.save_interval, save_known_peers{});
}

void linked(self_pointer self, const address_book_config& config, const peer_record& peer) {
  if (!self->state.peers.linked(peer))
    return;
  self->state.changed = true;
  save_later(self, config);
}

} // namespace

known_peers load_known_peers(disk& files, const std::filesystem::path& file,
                             const node_context& ctx) {
  auto names = files.list(file.parent_path());
  if (names && std::find(names->begin(), names->end(), file.filename().string()) == names->end())
    return {};
  auto text = files.read(file, known_peers::text_bytes_max);
  auto peers = text ? known_peers::parse(*text, ctx.run_id) : result<known_peers>{text.error()};
  if (peers)
    return *peers;
  ctx.log->warn("cannot use {}, starting without known peers: {}", file.string(),
                to_string(peers.error()));
  return {};
}

address_book_impl::behavior_type address_book(self_pointer self, node_context ctx,
                                              address_book_config config,
                                              std::shared_ptr<disk> files, known_peers loaded) {
  end_on_exception(self, ctx);
  self->state.peers = std::move(loaded);
  self->set_exit_handler([self, ctx, config, files](const caf::exit_msg& msg) {
    save(self, ctx, config, *files);
    self->quit(msg.reason);
  });
  return {
    [self, config](const peer_connected& msg) { linked(self, config, msg.peer); },
    [self, config](const peer_disconnected& msg) {
      for (const auto& peer : self->state.peers.newest_first())
        if (peer.id == msg.peer)
          return linked(self, config, {peer.id, {}, peer.addresses, false});
    },
    [self, ctx, config, files](save_known_peers) {
      self->state.save_due = false;
      save(self, ctx, config, *files);
      if (self->state.changed) // the disk failed
        save_later(self, config);
    },
  };
}

} // namespace waggle
