#include "runtime/dht/bootstrap.hpp"

#include <algorithm>
#include <utility>

namespace waggle {

namespace {

/// The pause until the next attempt is this fraction (1/32) of the time since the target was lost,
/// once that is long.
constexpr int away_parts = 32;

milliseconds doubled(milliseconds first, unsigned times, milliseconds longest) {
  constexpr unsigned times_max = 20; // 200 ms become two days
  return std::min(first * (1U << std::min(times, times_max)), longest);
}

} // namespace

void bootstrap::join_at(const std::vector<endpoint>& initial, const std::vector<known_peer>& known,
                        steady_time now) {
  targets_.clear();
  for (const auto& where : initial) {
    target t;
    t.initial = true;
    t.addresses = {where};
    t.away_since = t.due = now;
    targets_.push_back(std::move(t));
  }
  std::size_t count = 0;
  for (const auto& peer : known) {
    target t;
    t.from_earlier = true;
    t.peer = peer.id;
    for (const auto& where : peer.addresses)
      if (std::find(initial.begin(), initial.end(), where) == initial.end())
        t.addresses.push_back(where);
    if (t.addresses.empty() || count == options_.lost_max)
      continue;
    t.away_since = now;
    t.due = now + std::chrono::seconds{count++ / options_.known_at_once};
    targets_.push_back(std::move(t));
  }
  addresses_known_ = !targets_.empty();
  if (!addresses_known_)
    joined_ = true;
}

std::size_t bootstrap::initial_addresses() const {
  return static_cast<std::size_t>(
    std::count_if(targets_.begin(), targets_.end(), [](const target& t) { return t.initial; }));
}

std::vector<std::string> bootstrap::failures() const {
  std::vector<std::string> out;
  for (const auto& t : targets_)
    if (t.initial && !t.why.empty())
      out.push_back(to_string(t.address()) + ": " + t.why);
  return out;
}

// -- dialling ------------------------------------------------------------------------------------

bool bootstrap::waits(const target& t) const {
  return !t.dialling && !connected_.contains(t.peer);
}

bool bootstrap::dialling(const endpoint& where) const {
  return std::any_of(targets_.begin(), targets_.end(),
                     [&](const target& t) { return t.dialling && t.address() == where; });
}

std::vector<endpoint> bootstrap::due(steady_time now) {
  if (connected_.size() >= options_.known_at_once)
    std::erase_if(targets_, [](const target& t) { return t.from_earlier && !t.dialling; });
  std::vector<endpoint> out;
  for (auto& t : targets_) {
    if (!waits(t) || t.due > now)
      continue;
    if (dialling(t.address())) { // for another target; wait for that outcome
      t.due = now + jittered(options_.retry_min);
      continue;
    }
    t.dialling = true;
    out.push_back(t.address());
  }
  return out;
}

std::optional<steady_time> bootstrap::next() const {
  std::optional<steady_time> first;
  for (const auto& t : targets_)
    if (waits(t) && (!first || t.due < *first))
      first = t.due;
  return first;
}

bootstrap::target* bootstrap::dialled(const endpoint& where) {
  auto found = std::find_if(targets_.begin(), targets_.end(),
                            [&](const target& t) { return t.dialling && t.address() == where; });
  return found != targets_.end() ? &*found : nullptr;
}

void bootstrap::reached(const endpoint& where, const peer_id& who, steady_time now) {
  joined_ = true;
  auto* t = dialled(where);
  if (t == nullptr)
    return;
  t->dialling = false;
  t->from_earlier = false;
  t->why.clear();
  // The link may be closed again before `connected` is called.
  t->due = now + jittered(options_.retry_min);
  if (t->initial)
    t->peer = who;
  else if (t->peer != who) // the address now belongs to another peer of the run
    targets_.erase(targets_.begin() + (t - targets_.data()));
}

bool bootstrap::failed(const endpoint& where, const failure& why, steady_time now) {
  auto* t = dialled(where);
  if (t == nullptr)
    return false;
  t->dialling = false;
  bool is_news = t->initial && t->why.empty();
  bool ourselves = why.code == ec::duplicate_identity;
  if (ourselves || (why.code == ec::wrong_run && !t->initial)) {
    ourselves_ = ourselves_ || (ourselves && t->initial);
    // This address is no longer the peer's; it may have others.
    std::erase(t->addresses, where);
    if (t->addresses.empty())
      targets_.erase(targets_.begin() + (t - targets_.data()));
    if (targets_.empty() && !joined_)
      addresses_known_ = false; // there was only our own
    join_if_alone();
    return false;
  }
  t->why = to_string(why);
  back_off(*t, now);
  join_if_alone();
  return is_news;
}

/// A peer that is itself one of the initial peers may start the run if no other one is reachable.
void bootstrap::join_if_alone() {
  auto untried = [](const target& t) { return t.initial && t.why.empty(); };
  if ((ourselves_ && std::none_of(targets_.begin(), targets_.end(), untried)) || targets_.empty())
    joined_ = true;
}

milliseconds bootstrap::jittered(milliseconds pause) {
  auto factor = 0.75 + 0.5 * random_.unit();
  return milliseconds{static_cast<std::int64_t>(static_cast<double>(pause.count()) * factor)};
}

void bootstrap::back_off(target& t, steady_time now) {
  auto away = std::chrono::duration_cast<milliseconds>(now - t.away_since);
  auto longest = std::clamp(away / away_parts, options_.retry_quick, options_.retry_max);
  auto first = t.initial ? options_.retry_min : options_.redial_after;
  t.due = now + jittered(doubled(first, t.failures++, longest));
  ++t.turn;
}

// -- links ---------------------------------------------------------------------------------------

bool bootstrap::connected(const peer_record& peer, steady_time now) {
  connected_.insert_or_assign(peer.id, connection{peer.addresses, now});
  for (auto& t : targets_)
    if (t.peer == peer.id) {
      t.from_earlier = false;
      t.why.clear();
    }
  return !std::exchange(joined_, true);
}

void bootstrap::link_broke(target& t, bool settled, steady_time now) {
  t.short_links = settled ? 0 : t.short_links + 1;
  t.failures = 0;
  t.away_since = now;
  auto doublings = t.short_links > 0 ? t.short_links - 1 : 0;
  t.due = now + jittered(doubled(options_.redial_after, doublings, options_.retry_max));
}

void bootstrap::disconnected(const peer_id& peer, ec why, steady_time now, bool stranger) {
  auto link = connected_.extract(peer);
  if (link.empty())
    return;
  bool settled = now - link.mapped().since >= options_.settled_after;
  bool was_initial = false;
  for (auto& t : targets_)
    if (t.initial && t.peer == peer) {
      was_initial = true;
      link_broke(t, settled, now);
    }
  if (why == ec::shutting_down)
    std::erase_if(targets_, [&](const target& t) { return !t.initial && t.peer == peer; });
  else if (!was_initial)
    remember_lost(peer, link.mapped(), stranger, settled, now);
}

/// Forgets the peer that was lost first.
void bootstrap::forget_one(bool strangers) {
  auto longest = targets_.end();
  for (auto i = targets_.begin(); i != targets_.end(); ++i)
    if (!i->initial && (i->stranger || !strangers)
        && (longest == targets_.end() || i->away_since <= longest->away_since))
      longest = i;
  if (longest != targets_.end())
    targets_.erase(longest);
}

void bootstrap::remember_lost(const peer_id& peer, const connection& link, bool stranger,
                              bool settled, steady_time now) {
  auto known = std::find_if(targets_.begin(), targets_.end(),
                            [&](const target& t) { return !t.initial && t.peer == peer; });
  if (known != targets_.end()) {
    known->stranger = stranger;
    if (!link.addresses.empty() && known->addresses != link.addresses) {
      known->addresses = link.addresses;
      known->dialling = false; // that attempt is to an address that may no longer be the peer's
    }
    return link_broke(*known, settled, now);
  }
  if (link.addresses.empty())
    return;
  auto strangers = static_cast<std::size_t>(
    std::count_if(targets_.begin(), targets_.end(), [](const target& t) { return t.stranger; }));
  if (stranger && strangers >= options_.lost_strangers_max)
    forget_one(true);
  else if (targets_.size() - initial_addresses() >= options_.lost_max)
    forget_one(strangers > 0);
  target t;
  t.peer = peer;
  t.stranger = stranger;
  t.addresses = link.addresses;
  link_broke(t, settled, now);
  targets_.push_back(std::move(t));
}

} // namespace waggle
