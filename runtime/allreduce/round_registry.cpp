#include "runtime/allreduce/round_registry.hpp"

#include <algorithm>

#include "runtime/allreduce/round_messages.hpp"

namespace waggle {

namespace {

struct find_round {
  template <class Event>
  const round_id* operator()(const Event& event) const {
    if constexpr (requires { event.round; })
      return &event.round;
    else
      return nullptr;
  }
};

/// For the group, not for the round itself.
bool is_about_group(const wire::event& what) {
  return std::holds_alternative<wire::bandwidth_report>(what);
}

/// Threads that pass something on to a round do not belong to it: what it throws ends the round.
template <class Work>
void guarded(round_engine& round, Work work) {
  try {
    work();
  } catch (const std::exception& e) {
    round.break_off({ec::internal, e.what()});
  }
}

std::size_t size_of(const inbound_event& event) {
  return event.header_bytes + event.body.size;
}

/// Where the sender is. One that is not connected over a network is a host of its own.
std::string host_of(const inbound_event& event) {
  auto host = event.via ? event.via->host() : std::string{};
  return host.empty() ? std::string{event.from.id.raw()} : host;
}

} // namespace

const round_id* round_of(const wire::event& event) {
  return std::visit(find_round{}, event);
}

void round_registry::begin(const std::shared_ptr<round_engine>& round,
                           const group_listener& on_group) {
  {
    std::lock_guard guard{mutex_};
    auto& entry = rounds_[round->plan().id];
    remember_members(round->plan());
    entry.on_group = on_group;
    entry.begins = true;
  }
  if (members_changed_)
    members_changed_();
  guarded(*round, [&] { round->begin(); });
  catch_up(round, on_group);
  round->ship(); // without the lock, as all that takes long
}

/// Passes on what has arrived for the round. What arrives meanwhile is parked behind it, so that
/// nothing overtakes, and other rounds go on.
void round_registry::catch_up(const std::shared_ptr<round_engine>& round,
                              const group_listener& on_group) {
  for (;;) {
    std::vector<parked_event> waiting;
    {
      std::lock_guard guard{mutex_};
      auto& entry = rounds_[round->plan().id];
      waiting = take_parked(entry);
      if (waiting.empty()) {
        entry.begins = false;
        if (!entry.promise) // it has not ended meanwhile
          entry.running = round;
        return;
      }
    }
    for (const auto& [event, of_stranger] : waiting)
      pass_on(*round, on_group, event);
  }
}

void round_registry::pass_on(round_engine& round, const group_listener& on_group,
                             const inbound_event& event) {
  if (!is_about_group(event.what))
    return guarded(round, [&] { round.on_event(event); });
  on_group(event.from, event.what);
  event.release();
}

void round_registry::finish(const round_id& id, const wire::round_promise& promise,
                            steady_time now) {
  std::shared_ptr<round_engine> ended; // its buffers are freed without the lock
  std::vector<parked_event> waiting;
  {
    std::lock_guard guard{mutex_};
    std::erase_if(expected_, [&](const auto& item) { return item.second.id == id; });
    auto& entry = rounds_[id];
    ended = std::exchange(entry.running, nullptr);
    entry.promise = promise;
    entry.since = now;
    waiting = take_parked(entry); // only if the round ended before it began
  }
  for (const auto& [event, of_stranger] : waiting) {
    event.release();
    answer_late(promise, event);
  }
}

bool round_registry::was_prepared(const round_id& id) const {
  std::shared_ptr<round_engine> running;
  {
    std::lock_guard guard{mutex_};
    auto found = rounds_.find(id);
    if (found == rounds_.end())
      return false;
    if (const auto& promise = found->second.promise)
      return promise->prepared || promise->committed;
    running = found->second.running;
  }
  return running && running->was_prepared();
}

bool round_registry::deliver(const inbound_event& event, steady_time now) {
  const auto* id = round_of(event.what);
  if (id == nullptr)
    return false;
  std::shared_ptr<round_engine> running;
  std::optional<wire::round_promise> promise; // of a round that has ended
  group_listener on_group;
  std::vector<parked_event> gone; // freed without the lock
  {
    std::lock_guard guard{mutex_};
    auto found = rounds_.find(*id);
    if (found != rounds_.end() && !found->second.begins) {
      running = found->second.running;
      promise = found->second.promise;
      if (is_about_group(event.what))
        on_group = found->second.on_group;
    }
    if (is_about_group(event.what) && !on_group)
      on_group = listener_of_expected(event.from.id, *id);
    if (!running && !promise && !on_group) {
      bool of_stranger =
        !is_known(event.from.id) && !is_expected(event.from.id, *id, size_of(event));
      if (of_stranger && !has_room(event, true))
        drop_heaviest_stranger(event, gone);
      if (!has_room(event, of_stranger)) {
        event.release();
        return false;
      }
      park(rounds_[*id], event, of_stranger, now);
      return true;
    }
  }
  if (running) {
    pass_on(*running, on_group, event);
    return true;
  }
  if (on_group)
    on_group(event.from, event.what);
  event.release();
  if (promise && !is_about_group(event.what))
    answer_late(*promise, event);
  return true;
}

void round_registry::unreached(const peer_id& peer, const wire::event& event) {
  const auto* id = round_of(event);
  auto round = id == nullptr || is_about_group(event) ? nullptr : running(*id);
  if (round)
    guarded(*round, [&] { round->on_unreached(peer); });
}

// -- parked events -------------------------------------------------------------------------------

round_registry::tally round_registry::parked_of(const peer_id& peer) const {
  auto found = parked_.find(peer);
  return found == parked_.end() ? tally{} : found->second;
}

bool round_registry::has_room(const inbound_event& event, bool of_stranger) const {
  auto own = parked_of(event.from.id);
  if (!of_stranger)
    return own.events < limits_.parked_events_max;
  return own.events < limits_.stranger_events_max
         && strangers_.events < limits_.strangers_events_max
         && strangers_.bytes + size_of(event) <= limits_.strangers_bytes_max;
}

/// Drops what was parked for one stranger: of the host whose strangers have parked the most, if
/// that is more than the host of `in_favour_of` would have, the one that has parked the most;
/// otherwise one of the same host that has more than the sender would have. So a flood does not
/// push out what a newcomer sends to its first round. What was expected of a peer stays.
void round_registry::drop_heaviest_stranger(const inbound_event& in_favour_of,
                                            std::vector<parked_event>& gone) {
  auto found = strangers_by_peer_.find(in_favour_of.from.id);
  auto own = found == strangers_by_peer_.end() ? tally{} : found->second.held;
  if (parked_of(in_favour_of.from.id).events >= limits_.stranger_events_max)
    return;
  bool by_bytes = strangers_.events < limits_.strangers_events_max;
  auto weight = [by_bytes](const tally& t) { return by_bytes ? t.bytes : t.events; };
  auto with_event = [&](tally t) {
    return weight({t.events + 1, t.bytes + size_of(in_favour_of)});
  };
  auto host = host_of(in_favour_of);
  auto neighbours = strangers_by_host_.find(host);
  auto of_host = with_event(neighbours == strangers_by_host_.end() ? tally{} : neighbours->second);
  for (const auto& [name, held] : strangers_by_host_)
    if (weight(held) > of_host) {
      of_host = weight(held);
      host = name;
    }
  auto most =
    neighbours != strangers_by_host_.end() && host == neighbours->first ? with_event(own) : 0;
  std::optional<peer_id> heaviest;
  for (const auto& [id, held] : strangers_by_peer_)
    if (held.host == host && weight(held.held) > most && !is_known(id)) {
      heaviest = id;
      most = weight(held.held);
    }
  if (!heaviest)
    return;
  for (auto i = rounds_.begin(); i != rounds_.end();) {
    auto& entry = i->second;
    auto leave = std::stable_partition(
      entry.parked.begin(), entry.parked.end(), [&](const parked_event& parked) {
        return !parked.of_stranger || parked.event.from.id != *heaviest;
      });
    for (auto parked = leave; parked != entry.parked.end(); ++parked) {
      forget(*parked);
      parked->event.release();
      ++dropped_;
      gone.push_back(std::move(*parked));
    }
    bool shrunk = leave != entry.parked.end();
    entry.parked.erase(leave, entry.parked.end());
    bool unused =
      shrunk && entry.parked.empty() && !entry.running && !entry.begins && !entry.promise;
    i = unused ? rounds_.erase(i) : std::next(i);
  }
}

void round_registry::park(entry& where, const inbound_event& event, bool of_stranger,
                          steady_time now) {
  if (where.parked.empty())
    where.since = now;
  where.parked.push_back({event, of_stranger});
  auto add = [&](tally& t) {
    ++t.events;
    t.bytes += size_of(event);
  };
  add(parked_[event.from.id]);
  if (!of_stranger)
    return;
  add(strangers_);
  auto& who = strangers_by_peer_[event.from.id];
  if (who.held.events == 0)
    who.host = host_of(event);
  add(who.held);
  add(strangers_by_host_[who.host]);
}

void round_registry::forget(const parked_event& parked) {
  auto remove = [bytes = size_of(parked.event)](tally& t) {
    --t.events;
    t.bytes -= bytes;
    return t.events == 0;
  };
  auto own = parked_.find(parked.event.from.id);
  if (remove(own->second))
    parked_.erase(own);
  if (!parked.of_stranger)
    return;
  remove(strangers_);
  auto who = strangers_by_peer_.find(parked.event.from.id);
  auto host = strangers_by_host_.find(who->second.host);
  if (remove(host->second))
    strangers_by_host_.erase(host);
  if (remove(who->second.held))
    strangers_by_peer_.erase(who);
}

std::vector<round_registry::parked_event> round_registry::take_parked(entry& from) {
  auto taken = std::exchange(from.parked, {});
  for (const auto& parked : taken)
    forget(parked);
  return taken;
}

void round_registry::expect(const round_plan& plan, const group_listener& on_group) {
  expected_round next{plan.id, {}, 2 * plan.elements * sizeof(float), on_group};
  for (const auto& member : plan.members)
    next.members.insert(member.peer.id);
  {
    std::lock_guard guard{mutex_};
    expected_.insert_or_assign(plan.prefix, std::move(next));
  }
  if (members_changed_)
    members_changed_();
}

bool round_registry::is_expected(const peer_id& peer, const round_id& id, std::size_t bytes) const {
  return std::ranges::any_of(expected_, [&](const auto& item) {
    const auto& next = item.second;
    return next.id == id && next.members.contains(peer)
           && parked_of(peer).bytes + bytes <= next.bytes_max;
  });
}

round_registry::group_listener round_registry::listener_of_expected(const peer_id& peer,
                                                                    const round_id& id) const {
  auto found = std::ranges::find_if(expected_, [&](const auto& item) {
    return item.second.id == id && item.second.members.contains(peer);
  });
  return found == expected_.end() ? group_listener{} : found->second.on_group;
}

bool round_registry::expects(const peer_id& peer, const round_id& id, std::size_t bytes) const {
  std::lock_guard guard{mutex_};
  return is_expected(peer, id, bytes);
}

void round_registry::remember_members(const round_plan& plan) {
  ++rounds_begun_;
  for (const auto& member : plan.members)
    members_[member.peer.id] = rounds_begun_;
  while (members_.size() > members_max)
    members_.erase(
      std::ranges::min_element(members_, {}, [](const auto& each) { return each.second; }));
}

bool round_registry::takes_part_in(const round_id& id) const {
  std::lock_guard guard{mutex_};
  auto found = rounds_.find(id);
  return (found != rounds_.end() && found->second.on_group)
         || std::ranges::any_of(expected_, [&](const auto& item) { return item.second.id == id; });
}

bool round_registry::has_averaged_with(const peer_id& peer) const {
  std::lock_guard guard{mutex_};
  return is_known(peer);
}

// -- rounds that have ended ----------------------------------------------------------------------

void round_registry::answer_late(const wire::round_promise& promise,
                                 const inbound_event& event) const {
  if (auto answer = late_answer(event.what, promise))
    answer_(event.from, *answer);
}

std::shared_ptr<round_engine> round_registry::running(const round_id& id) {
  std::lock_guard guard{mutex_};
  auto found = rounds_.find(id);
  return found == rounds_.end() ? nullptr : found->second.running;
}

std::shared_ptr<std::byte> round_registry::destination(const peer_id& from, const wire::part& head,
                                                       std::size_t bytes) {
  auto round = running(head.round);
  return round ? round->destination(from, head, bytes) : nullptr;
}

bool round_registry::zero_copy_ok(const wire::part& head) {
  auto round = running(head.round);
  return round && round->zero_copy_ok(head);
}

std::size_t round_registry::forget_old(steady_time now) {
  std::vector<parked_event> gone; // freed without the lock
  std::lock_guard guard{mutex_};
  auto unwanted = std::exchange(dropped_, 0);
  for (auto i = rounds_.begin(); i != rounds_.end();) {
    auto& entry = i->second;
    auto age = now - entry.since;
    if (entry.running || entry.begins
        || age < (entry.promise ? limits_.remembered_for : limits_.parked_for)) {
      ++i;
      continue;
    }
    auto dropped = take_parked(entry);
    for (const auto& [event, of_stranger] : dropped)
      event.release();
    unwanted += dropped.size();
    std::move(dropped.begin(), dropped.end(), std::back_inserter(gone));
    i = rounds_.erase(i);
  }
  return unwanted;
}

} // namespace waggle
