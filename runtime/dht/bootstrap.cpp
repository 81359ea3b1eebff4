// This file is long: it is one table of targets and their addresses, and the outcome of any lookup,
// dial or link changes when each of them is due.

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
                        steady_time now, const std::set<endpoint>& names) {
  targets_.clear();
  for (const auto& where : initial) {
    target t;
    t.given = where;
    t.is_name = names.contains(where);
    t.away_since = t.resolve_at = now;
    if (!t.is_name)
      t.addresses = fresh({where}, now, now);
    targets_.push_back(std::move(t));
  }
  std::size_t count = 0;
  for (const auto& peer : known) {
    std::vector<endpoint> others;
    for (const auto& where : peer.addresses)
      if (std::ranges::find(initial, where) == initial.end())
        others.push_back(where);
    if (others.empty() || count == options_.lost_max)
      continue;
    target t;
    t.from_earlier = true;
    t.peer = peer.id;
    t.away_since = now;
    t.addresses = fresh(others, now + std::chrono::seconds{count++ / options_.known_at_once}, now);
    targets_.push_back(std::move(t));
  }
  addresses_known_ = !targets_.empty();
  if (!addresses_known_)
    joined_ = true;
}

/// Addresses that were not tried yet: one after the other from `first` on.
std::vector<bootstrap::address> bootstrap::fresh(const std::vector<endpoint>& all,
                                                 steady_time first, steady_time now) const {
  std::vector<address> out;
  for (const auto& where : all) {
    address a;
    a.where = where;
    a.away_since = now;
    a.due = first + options_.apart * out.size();
    out.push_back(std::move(a));
  }
  return out;
}

// -- what is known of the targets ----------------------------------------------------------------

std::size_t bootstrap::initial_addresses() const {
  return static_cast<std::size_t>(
    std::ranges::count_if(targets_, [this](const target& t) { return t.given && !is_own(t); }));
}

/// This initial address is our own.
bool bootstrap::is_own(const target& t) const {
  unsigned meetings = 0;
  for (const auto& a : t.addresses) {
    if (a.meetings == 0)
      return false;
    meetings += a.meetings;
  }
  return meetings >= options_.own_after;
}

bool bootstrap::linked(const target& t) const {
  return connected_.contains(t.peer) || std::ranges::any_of(t.addresses, [this](const address& a) {
           return connected_.contains(a.peer);
         });
}

bool bootstrap::nobody_answers(const target& t) const {
  if (t.addresses.empty())
    return !t.why.empty();
  auto fails = [](const address& a) { return !a.why.empty(); };
  return std::ranges::any_of(t.addresses, fails)
         && std::ranges::all_of(t.addresses,
                                [&](const address& a) { return fails(a) || a.meetings > 0; });
}

std::vector<std::string> bootstrap::failures() const {
  std::vector<std::string> out;
  for (const auto& t : targets_) {
    if (!t.given || !nobody_answers(t))
      continue;
    auto line = to_string(*t.given) + ": " + (t.addresses.empty() ? t.why : "");
    auto separator = "";
    for (const auto& a : t.addresses)
      if (!a.why.empty())
        line += std::exchange(separator, ", ")
                + (a.where == *t.given ? "" : to_string(a.where) + ": ") + a.why;
    out.push_back(std::move(line));
  }
  return out;
}

notice bootstrap::seen() const {
  for (const auto& t : targets_)
    if (t.given && std::ranges::any_of(t.addresses, [](const address& a) { return a.shared; }))
      return {"initial_peers",
              to_string(*t.given)
                + " leads to this peer and to others, so peers may find each other late",
              "name single peers as initial peers, or give a name that stands for all of them"};
  if (!joined_ || !connected_.empty() || initial_addresses() > 0)
    return {};
  for (const auto& t : targets_)
    if (t.given)
      return {"initial_peers",
              to_string(*t.given)
                + " is this peer itself and no other answers there, so this peer starts the run",
              "if the run exists, add the address of another of its peers to the initial peers"};
  return {};
}

// -- resolving -----------------------------------------------------------------------------------

std::vector<endpoint> bootstrap::unresolved(steady_time now) {
  std::vector<endpoint> out;
  for (auto& t : targets_)
    if (t.is_name && !t.resolving && t.resolve_at <= now) {
      t.resolving = true;
      out.push_back(*t.given);
    }
  return out;
}

bool bootstrap::resolved(const endpoint& name, const result<std::vector<endpoint>>& found,
                         steady_time now) {
  auto t = std::ranges::find_if(
    targets_, [&](const target& each) { return each.resolving && each.given == name; });
  if (t == targets_.end())
    return false;
  t->resolving = false;
  t->resolve_at = now
                  + jittered(linked(*t) ? options_.resolve_again
                                        : doubled(options_.retry_min, t->resolutions++,
                                                  longest_pause(t->away_since, now)));
  if (!found) { // the addresses found earlier may be right
    bool is_news = t->why.empty() && found.error().code != ec::shutting_down;
    t->why = to_string(found.error());
    join_if_alone();
    return is_news;
  }
  t->why.clear();
  std::erase_if(t->addresses, [&](const address& a) {
    return !a.dialling && !connected_.contains(a.peer)
           && std::find(found->begin(), found->end(), a.where) == found->end();
  });
  std::vector<endpoint> added;
  for (const auto& where : *found)
    if (std::ranges::none_of(t->addresses, [&](const address& a) { return a.where == where; }))
      added.push_back(where);
  for (auto& a : fresh(added, now, now))
    t->addresses.push_back(std::move(a));
  return false;
}

// -- dialling ------------------------------------------------------------------------------------

bool bootstrap::waits(const target& t, const address& a) const {
  if (a.dialling)
    return false;
  if (!t.given)
    return !connected_.contains(t.peer);
  if (connected_.contains(a.peer) && !a.shared)
    return false;
  bool has_others =
    std::ranges::any_of(t.addresses, [](const address& other) { return other.meetings == 0; });
  if (a.meetings > 0 && has_others && !a.shared)
    return false; // the address of a name that is our own
  bool finds_others = a.shared || a.meetings > 0 || t.addresses.size() > 1;
  return !finds_others || connected_.size() < options_.known_at_once;
}

std::vector<endpoint> bootstrap::due(steady_time now) {
  if (connected_.size() >= options_.known_at_once)
    std::erase_if(targets_, [](const target& t) {
      return t.from_earlier
             && std::ranges::none_of(t.addresses, [](const address& a) { return a.dialling; });
    });
  std::vector<endpoint> out;
  for (auto& t : targets_)
    for (auto& a : t.addresses) {
      if (!waits(t, a) || a.due > now)
        continue;
      if (dialled(a.where).of != nullptr) { // for another target; wait for that outcome
        a.due = now + jittered(options_.retry_min);
        continue;
      }
      a.dialling = true;
      out.push_back(a.where);
    }
  return out;
}

std::optional<steady_time> bootstrap::next() const {
  std::optional<steady_time> first;
  auto at = [&first](steady_time when) { first = first ? std::min(*first, when) : when; };
  for (const auto& t : targets_) {
    if (t.is_name && !t.resolving)
      at(t.resolve_at);
    for (const auto& a : t.addresses)
      if (waits(t, a))
        at(a.due);
  }
  return first;
}

bootstrap::attempt bootstrap::dialled(const endpoint& where) {
  for (auto& t : targets_)
    for (auto& a : t.addresses)
      if (a.dialling && a.where == where)
        return {&t, &a};
  return {};
}

std::optional<endpoint> bootstrap::given_for(const endpoint& where) {
  auto found = dialled(where);
  return found.of == nullptr ? std::nullopt : found.of->given;
}

void bootstrap::reached(const endpoint& where, const peer_id& who, steady_time now) {
  joined_ = true;
  auto ended = dialled(where);
  if (ended.of == nullptr)
    return;
  auto& t = *ended.of;
  auto& a = *ended.at;
  a.dialling = false;
  a.clear_reasons();
  a.failures = 0;
  t.from_earlier = false;
  // The link may be closed again before `connected` is called.
  auto soon = now + jittered(options_.retry_min);
  if (!t.given) {
    if (t.peer != who) // the address now belongs to another peer of the run
      return forget(ended);
    for (auto& each : t.addresses)
      each.due = std::max(each.due, soon);
    return;
  }
  a.shared = a.shared || a.meetings > 0 || (a.peer != who && connected_.contains(a.peer));
  a.meetings = 0;
  a.peer = who;
  a.due =
    a.shared ? now + jittered(doubled(options_.retry_min, a.repeats++, options_.retry_max)) : soon;
}

void bootstrap::met_ourselves(const endpoint& where, steady_time now) {
  auto ended = dialled(where);
  if (ended.of == nullptr)
    return;
  auto& t = *ended.of;
  auto& a = *ended.at;
  a.dialling = false;
  if (!t.given) {
    forget(ended); // it is no longer the peer's
    return join_if_alone();
  }
  a.clear_reasons();
  a.failures = 0;
  a.shared = a.shared || !a.peer.is_zero();
  a.peer = {};
  ++a.meetings;
  auto pause = doubled(options_.ourselves_min, a.meetings - 1, options_.retry_max);
  if (a.shared && !connected_.empty())
    pause = doubled(options_.retry_min, a.repeats++, options_.retry_max);
  a.due = now + jittered(pause);
  try_another(t, now);
  join_if_alone();
}

bool bootstrap::failed(const endpoint& where, const failure& why, steady_time now) {
  auto ended = dialled(where);
  if (ended.of == nullptr)
    return false;
  auto& t = *ended.of;
  auto& a = *ended.at;
  a.dialling = false;
  if (why.code == ec::wrong_run && !t.given) {
    forget(ended); // it is no longer the peer's
    join_if_alone();
    return false;
  }
  bool is_news = a.reasons.insert(why.code).second && t.given && !a.left
                 && why.code != ec::shutting_down;
  a.why = to_string(why);
  back_off(t, a, now);
  if (why.code == ec::not_a_member)
    a.due = std::min(a.due, now + options_.knock);
  try_another(t, now);
  join_if_alone();
  return is_news;
}

/// Forgets an address that is not that of a peer. The peer may have others.
void bootstrap::forget(const attempt& ended) {
  auto& all = ended.of->addresses;
  all.erase(all.begin() + (ended.at - all.data()));
  if (all.empty())
    targets_.erase(targets_.begin() + (ended.of - targets_.data()));
}

/// Does not wait longer with the next address if this one has failed.
void bootstrap::try_another(target& t, steady_time now) {
  auto next = t.addresses.end();
  for (auto a = t.addresses.begin(); a != t.addresses.end(); ++a)
    if (!a->dialling && a->untried() && (next == t.addresses.end() || a->due < next->due))
      next = a;
  if (next != t.addresses.end())
    next->due = std::min(next->due, now);
}

/// A peer that is itself one of the initial peers may start the run if no other one is reachable.
void bootstrap::join_if_alone() {
  if (joined_)
    return;
  bool ourselves = false;
  bool all_own = true;
  bool some_fail = false;
  bool too_early = false; // an address has led only to ourselves, but not often
  for (const auto& t : targets_) {
    bool own = t.given && is_own(t);
    all_own = all_own && own;
    if (!t.given)
      continue;
    if (t.addresses.empty() && t.why.empty())
      return; // the name is being resolved
    for (const auto& a : t.addresses) {
      if (a.untried())
        return;
      ourselves = ourselves || a.meetings > 0;
    }
    bool fails = nobody_answers(t);
    some_fail = some_fail || fails;
    too_early = too_early || (!own && !fails);
  }
  if (too_early && !some_fail)
    return;
  if (all_own) // or there is no target
    addresses_known_ = false;
  joined_ = ourselves || targets_.empty();
}

milliseconds bootstrap::jittered(milliseconds pause) {
  auto factor = 0.75 + 0.5 * random_.unit();
  return milliseconds{static_cast<std::int64_t>(static_cast<double>(pause.count()) * factor)};
}

milliseconds bootstrap::longest_pause(steady_time away_since, steady_time now) const {
  auto away = std::chrono::duration_cast<milliseconds>(now - away_since);
  return std::clamp(away / away_parts, options_.retry_quick, options_.retry_max);
}

void bootstrap::back_off(const target& t, address& a, steady_time now) {
  auto first = t.given ? options_.retry_min : options_.redial_after;
  a.due = now + jittered(doubled(first, a.failures++, longest_pause(a.away_since, now)));
}

// -- links ---------------------------------------------------------------------------------------

bool bootstrap::connected(const peer_record& peer, steady_time now) {
  connected_.try_emplace(peer.id, connection{{}, now}).first->second.addresses = peer.addresses;
  for (auto& t : targets_) {
    if (t.peer == peer.id)
      t.from_earlier = false;
    for (auto& a : t.addresses)
      if (t.peer == peer.id || a.peer == peer.id)
        a.clear_reasons();
  }
  return !std::exchange(joined_, true);
}

void bootstrap::link_broke(address& a, bool settled, steady_time now) {
  a.short_links = settled ? 0 : a.short_links + 1;
  a.failures = 0;
  a.away_since = now;
  auto doublings = a.short_links > 0 ? a.short_links - 1 : 0;
  a.due = now + jittered(doubled(options_.redial_after, doublings, options_.retry_max));
}

void bootstrap::disconnected(const peer_id& peer, ec why, steady_time now, bool stranger) {
  auto link = connected_.extract(peer);
  if (link.empty())
    return;
  bool settled = now - link.mapped().since >= options_.settled_after;
  bool was_initial = false;
  for (auto& t : targets_) {
    if (!t.given)
      continue;
    for (auto& a : t.addresses)
      if (a.peer == peer) {
        was_initial = true;
        a.left = why == ec::shutting_down;
        link_broke(a, settled, now);
        t.resolutions = 0;
        t.away_since = now;
        t.resolve_at = std::min(t.resolve_at, a.due);
      }
  }
  if (why == ec::shutting_down)
    std::erase_if(targets_, [&](const target& t) { return !t.given && t.peer == peer; });
  else if (!was_initial)
    remember_lost(peer, link.mapped(), stranger, settled, now);
}

/// For one more lost peer: forgets the one that was lost first.
void bootstrap::make_room(bool for_stranger) {
  auto count = [this](auto which) {
    return static_cast<std::size_t>(std::ranges::count_if(targets_, which));
  };
  auto strangers = count([](const target& t) { return t.stranger; });
  bool too_many = for_stranger && strangers >= options_.lost_strangers_max;
  if (!too_many && count([](const target& t) { return !t.given; }) < options_.lost_max)
    return;
  auto longest = targets_.end();
  for (auto i = targets_.begin(); i != targets_.end(); ++i)
    if (!i->given && (i->stranger || (strangers == 0 && !too_many))
        && (longest == targets_.end() || i->away_since <= longest->away_since))
      longest = i;
  if (longest != targets_.end())
    targets_.erase(longest);
}

void bootstrap::remember_lost(const peer_id& peer, const connection& link, bool stranger,
                              bool settled, steady_time now) {
  auto known =
    std::ranges::find_if(targets_, [&](const target& t) { return !t.given && t.peer == peer; });
  if (known == targets_.end()) {
    if (link.addresses.empty())
      return;
    make_room(stranger);
    known = targets_.insert(targets_.end(), target{});
    known->peer = peer;
    known->addresses = fresh(link.addresses, now, now);
  } else if (!link.addresses.empty()
             && !std::ranges::equal(known->addresses, link.addresses, {}, &address::where)) {
    // Also attempts under way are to addresses that may no longer be the peer's.
    auto short_links = known->addresses.front().short_links;
    known->addresses = fresh(link.addresses, now, now);
    for (auto& a : known->addresses)
      a.short_links = short_links;
  }
  known->stranger = stranger;
  known->away_since = now;
  for (auto& a : known->addresses)
    link_broke(a, settled, now);
  for (std::size_t i = 1; i < known->addresses.size(); ++i)
    known->addresses[i].due = known->addresses[0].due + options_.apart * i;
}

} // namespace waggle
