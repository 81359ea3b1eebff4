// switchboard ─► peer_connected, peer_disconnected ─► known_peers ─► (save_interval) ─► disk

#include "actors/links/address_book.hpp"

#include <algorithm>
#include <utility>

#include "actors/guard.hpp"

namespace waggle {

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

void load_kept_list(disk& files, const std::filesystem::path& folder, const node_context& ctx) {
  auto names = files.list(folder);
  if (!names || std::find(names->begin(), names->end(), members_file) == names->end())
    return;
  auto given = ctx.members->rank();
  auto kept = files.read(folder / members_file, member_list::bytes_max);
  auto taken = kept ? ctx.members->take(*kept) : result<bool>{kept.error()};
  if (!taken)
    ctx.log->warn("ignored {}: {}", (folder / members_file).string(), to_string(taken.error()));
  else if (*taken && given.version != 0)
    ctx.log->info("{} has a newer list of members than this peer was given: version {} instead of "
                  "{}",
                  (folder / members_file).string(), ctx.members->rank().version, given.version);
}

address_book::address_book(caf::actor_config& cfg, node_context ctx, address_book_config config,
                           std::shared_ptr<disk> files, known_peers loaded)
  : address_book_base(cfg), ctx_(std::move(ctx)), config_(std::move(config)),
    files_(std::move(files)), peers_(std::move(loaded)) {
  end_on_exception(this, ctx_);
}

address_book::behavior_type address_book::make_behavior() {
  set_exit_handler([this](const caf::exit_msg& msg) {
    save();
    quit(msg.reason);
  });
  return {
    [this](const peer_connected& msg) { linked(msg.peer); },
    [this](const peer_disconnected& msg) { unlinked(msg.peer); },
    [this](members_changed) { save_members(); },
    [this](save_known_peers) {
      save_due_ = false;
      save();
      if (changed_) // the disk failed
        save_later();
    },
  };
}

void address_book::linked(const peer_record& peer) {
  bool first = peers_.newest_first().empty();
  if (!peers_.linked(peer))
    return;
  changed_ = true;
  if (first) // one that is killed and knows nobody would begin the run anew
    save();
  if (changed_)
    save_later();
}

void address_book::unlinked(const peer_id& peer) {
  for (const auto& known : peers_.newest_first())
    if (known.id == peer)
      return linked({known.id, {}, known.addresses, false});
}

void address_book::save_later() {
  if (!std::exchange(save_due_, true))
    delayed_send(this, config_.save_interval, save_known_peers{});
}

void address_book::save_members() {
  auto list = ctx_.members->list();
  if (!list)
    return;
  auto file = config_.file.parent_path() / members_file;
  if (auto written = files_->write(file, {as_byte_span(list->bytes())}); !written)
    ctx_.log->warn("the list of members is not kept: {}", to_string(written.error()));
}

void address_book::save() {
  if (!changed_)
    return;
  auto text = peers_.text(ctx_.run_id);
  auto written = files_->write(config_.file, {as_byte_span(text)});
  if (!written && !disk_fails_)
    ctx_.log->warn("known peers are not kept: {}", to_string(written.error()));
  disk_fails_ = !written;
  changed_ = !written;
}

} // namespace waggle
