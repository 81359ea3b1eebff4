// The switchboard's links end with peers that do not belong to the run, and carry the list that
// says who does.

#include <algorithm>

#include "actors/guard.hpp"
#include "actors/links/switchboard.hpp"

namespace waggle {

void notify_of_lists(const node_context& ctx, const wired_switchboard_actor& links,
                     const link_listener_actor& book) {
  if (!ctx.members)
    return;
  std::vector<caf::weak_actor_ptr> all{caf::actor_cast<caf::weak_actor_ptr>(links)};
  if (book)
    all.push_back(caf::actor_cast<caf::weak_actor_ptr>(book));
  auto notify = [all] { // weak, because the actors have the list
    for (const auto& each : all)
      if (auto to = caf::actor_cast<caf::strong_actor_ptr>(each))
        caf::anon_send(caf::actor_cast<members_listener_actor>(to), members_changed{});
  };
  ctx.members->on_change(notify);
  notify();
}

void switchboard::on_members_changed() {
  auto list = ctx_.members->list();
  if (!list)
    return;
  ctx_.log->info("the list of members is version {}: {} peers, until {}", list->rank().version,
                 list->members().size(), date_of(list->end()));
  members_changed_ = now();
  on_members_due({members_checks_});
  for (const auto& [id, peer] : peers_)
    send(used(id, peer.connections).actor, notify_over_link{wire::members_note{list->bytes()}, {}});
}

void switchboard::on_members_due(const members_due& msg) {
  if (msg.number != members_checks_)
    return;
  end_links_of_others();
  auto time = ctx_.wall->now();
  if (auto next = ctx_.members->next_end(time)) {
    // The wall clock may be set meanwhile.
    auto wait = std::min(std::chrono::ceil<milliseconds>(*next - time), milliseconds{1h});
    delayed_send(this, wait, members_due{++members_checks_});
  }
}

/// The handshake has asked the same, perhaps of an older list.
run_members::judgement switchboard::judge(const peer_id& peer) const {
  return ctx_.members ? ctx_.members->judge(peer, ctx_.wall->now()) : run_members::judgement{};
}

void switchboard::end_links_of_others() {
  std::vector<link_down> ended;
  for (const auto& [id, peer] : peers_) {
    auto why = judge(id);
    if (why.here.code == ec::none)
      continue;
    for (const auto& c : peer.connections) {
      send(c.actor, close_link{why.there, false});
      ended.push_back({id, c.number, why.here});
    }
    if (peer.newcomer)
      peer.newcomer->close(why.there);
  }
  for (const auto& each : ended) {
    if (auto peer = peers_.find(each.peer); peer != peers_.end())
      peer->second.newcomer = nullptr;
    on_link_down(each);
  }
}

} // namespace waggle
