#include "runtime/net/reachability.hpp"

#include <algorithm>

namespace waggle::net {

void reachability::connected(const peer_id& peer, const std::string& host, bool dialled,
                             steady_time now) {
  linked(peer, now);
  if (host.empty() || punched_.contains(peer))
    return;
  if (!dialled)
    return reached(now);
  peers_.insert_or_assign(peer, host);
  if (!asked_.empty())
    return;
  auto soon = now + options_.settle;
  if (!begun_)
    due_ = due_.value_or(soon);
  else if (unreachable_ && tried_ < options_.asked_max) // this one may reach us
    due_ = std::min(due_.value_or(soon), std::max(soon, *begun_ + options_.apart));
}

void reachability::linked(const peer_id& peer, steady_time now) {
  missing_.erase(peer);
  if (unlinked_.erase(peer) > 0 && unlinked_.empty())
    all_linked_ = now;
}

void reachability::punched(const peer_id& peer, steady_time now) {
  linked(peer, now);
  punched_.insert(peer);
}

void reachability::disconnected(const peer_id& peer) {
  peers_.erase(peer);
  punched_.erase(peer);
}

void reachability::missing(const peer_id& peer, steady_time now) {
  if (missing_.contains(peer) || missing_.size() < options_.unlinked_max)
    missing_.insert_or_assign(peer, now);
}

void reachability::unlinked(const peer_record& peer, bool stalled, steady_time now) {
  if (unreachable_)
    missing(peer.id, now);
  bool flaps = all_linked_ && now - *all_linked_ < options_.relapse;
  if (auto known = unlinked_.find(peer.id); known != unlinked_.end())
    known->second.met = now;
  else if (stalled && !flaps && unlinked_.size() < options_.unlinked_max)
    unlinked_.emplace(peer.id, missing_link{peer, now, now});
}

std::vector<peer_record> reachability::links_due(steady_time now) {
  std::erase_if(missing_,
                [&](const auto& each) { return now - each.second >= options_.link_missed; });
  std::erase_if(unlinked_,
                [&](const auto& each) { return now - each.second.met >= options_.link_missed; });
  std::vector<peer_record> out;
  for (auto& [id, link] : unlinked_)
    if (now - link.tried >= options_.link_tried) {
      link.tried = now;
      out.push_back(link.peer);
    }
  return out;
}

std::optional<steady_time> reachability::next() const {
  auto when = asked_.empty() && !peers_.empty() ? due_ : std::nullopt;
  for (const auto& [peer, link] : unlinked_) {
    auto due = link.tried + options_.link_tried;
    when = std::min(when.value_or(due), due);
  }
  return when;
}

std::vector<peer_id> reachability::due(steady_time now) {
  if (!asked_.empty() || peers_.empty() || !due_ || now < *due_)
    return {};
  std::vector<peer_id> out;
  std::set<std::string> hosts;
  for (bool new_hosts : {true, false})
    for (const auto& [peer, host] : peers_)
      if (out.size() < options_.asked_max && !asked_.contains(peer)
          && hosts.insert(host).second == new_hosts) {
        asked_.emplace(peer, std::nullopt);
        out.push_back(peer);
      }
  begun_ = now;
  due_.reset();
  return out;
}

void reachability::answered(const peer_id& peer, dial_back_outcome outcome, steady_time now) {
  auto found = asked_.find(peer);
  if (found == asked_.end())
    return;
  found->second = outcome;
  if (outcome == dial_back_outcome::reached)
    return reached(now);
  if (std::all_of(asked_.begin(), asked_.end(), [](const auto& each) { return each.second; }))
    conclude(now);
}

void reachability::conclude(steady_time now) {
  auto tried =
    static_cast<std::size_t>(std::count_if(asked_.begin(), asked_.end(), [](const auto& each) {
      return each.second == dial_back_outcome::not_reached;
    }));
  asked_.clear();
  if (tried > 0) {
    unreachable_ = true;
    tried_ = tried;
  }
  due_ = now + (tried > 0 ? options_.if_closed : options_.if_unknown);
}

void reachability::reached(steady_time now) {
  asked_.clear();
  unreachable_ = false;
  tried_ = 0;
  begun_ = now;
  due_ = now + options_.if_reached;
}

bool dial_back_limits::take(const std::string& host, std::size_t ports, steady_time now) {
  while (!taken_.empty() && now - taken_.front().first >= options_.within)
    taken_.pop_front();
  auto of_host = static_cast<std::size_t>(std::count_if(
    taken_.begin(), taken_.end(), [&](const auto& each) { return each.second == host; }));
  if (taken_.size() + ports > options_.all_max || of_host + ports > options_.of_host_max)
    return false;
  taken_.insert(taken_.end(), ports, {now, host});
  return true;
}

} // namespace waggle::net
