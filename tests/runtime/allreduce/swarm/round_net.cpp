#include "tests/runtime/allreduce/swarm/round_net.hpp"

#include <algorithm>
#include <cstring>

namespace waggle::testing {

namespace {

std::uint64_t mix(std::uint64_t hash, std::uint64_t x) {
  return (hash ^ x) * 0x100000001b3U;
}

std::uint64_t checksum(byte_span bytes) {
  std::uint64_t hash = 0xcbf29ce484222325U;
  std::size_t i = 0;
  for (; i + 8 <= bytes.size(); i += 8) {
    std::uint64_t word = 0;
    std::memcpy(&word, bytes.data() + i, 8);
    hash = mix(hash, word);
  }
  for (; i < bytes.size(); ++i)
    hash = mix(hash, std::to_integer<std::uint64_t>(bytes[i]));
  return hash;
}

} // namespace

void round_net::receipt::grant(std::size_t bytes) {
  granted_ += bytes;
  ++releases_;
  net_.widen(from_, to_, bytes, generation_);
}

round_net::round_net(std::uint64_t seed, options opts, listener& members)
  : random_(seed), options_(opts), listener_(members), members_(opts.members),
    links_(opts.members * opts.members) {
  for (auto& l : links_) {
    l.delay = options_.delay_min + some(options_.delay_max - options_.delay_min);
    l.bytes_per_second = options_.bytes_per_second;
    l.window = options_.window_bytes;
  }
}

// -- time ----------------------------------------------------------------------------------------

bool round_net::step() {
  if (events_.empty())
    return false;
  auto next = events_.extract(events_.begin());
  now_ = next.key().first;
  next.mapped()();
  return true;
}

void round_net::at(duration delay, std::function<void()> what) {
  events_.emplace(std::pair{now_ + delay, sequence_++}, std::move(what));
}

void round_net::on_member(std::size_t member, duration delay, std::function<void()> what) {
  at(delay, [this, member, what = std::move(what)] { run_on(member, what); });
}

void round_net::run_on(std::size_t member, std::function<void()> what) {
  auto& m = members_[member];
  if (!m.alive)
    return;
  // Also holds back events at the very time of the thaw, before the backlog was processed.
  if (frozen(member) || !m.backlog.empty())
    m.backlog.push_back(std::move(what));
  else
    what();
}

void round_net::thaw(std::size_t who) {
  if (frozen(who))
    return; // frozen again meanwhile
  auto backlog = std::exchange(members_[who].backlog, {});
  for (const auto& what : backlog)
    if (members_[who].alive)
      what();
}

round_net::duration round_net::some(duration up_to) {
  return duration{static_cast<duration::rep>(random_.unit() * static_cast<double>(up_to.count()))};
}

round_net::duration round_net::detection() {
  return options_.detector * 4 / 5 + some(options_.detector * 2 / 5);
}

// -- traffic -------------------------------------------------------------------------------------

void round_net::never_link(std::size_t a, std::size_t b) {
  link(a, b).down = link(b, a).down = true;
}

void round_net::send(std::size_t from, std::size_t to, wire::event what, payload body) {
  auto& l = link(from, to);
  if (!members_[from].alive || l.down)
    return;
  if (now_ < l.ready_at) {
    // Sent as soon as there is a connection, in the order of the events.
    if_still_linked(from, to, l.ready_at - now_,
                    [this, from, to, what, body] { send(from, to, what, body); });
    return;
  }
  auto sum = checksum(body.view());
  auto p = std::make_shared<parcel>(
    parcel{from, to, std::move(what), std::move(body), sum, l.generation, nullptr});
  if (p->body.empty()) {
    l.last_control = std::max(l.last_control, now_ + l.delay + some(l.delay));
    at(l.last_control - now_, [this, p] { arrive(p); });
    return;
  }
  l.waiting.push_back(std::move(p));
  pump(from, to);
}

void round_net::pump(std::size_t from, std::size_t to) {
  auto& l = link(from, to);
  if (l.sending || l.blocked || l.waiting.empty() || !members_[from].alive
      || l.waiting.front()->body.size > l.window)
    return;
  auto p = l.waiting.front();
  l.waiting.pop_front();
  l.window -= p->body.size;
  l.sending = true;
  auto takes = std::chrono::duration_cast<duration>(
    std::chrono::duration<double>(static_cast<double>(p->body.size) / l.bytes_per_second));
  at(l.delay, [this, p] { announce(p); });
  at(takes, [this, from, to, generation = l.generation] {
    auto& l = link(from, to);
    if (l.generation != generation)
      return;
    l.sending = false;
    pump(from, to);
  });
  at(takes + l.delay, [this, p] { arrive(p); });
}

bool round_net::under_way(const parcel& p) {
  const auto& l = link(p.from, p.to);
  return p.generation == l.generation || (p.generation + 1 == l.generation && now_ <= l.cutoff);
}

/// The header and half of the body have arrived.
void round_net::announce(const parcel_ptr& p) {
  const auto* head = std::get_if<wire::part>(&p->what);
  const auto& to = members_[p->to];
  if (head == nullptr || !to.alive || frozen(p->to) || !to.backlog.empty()
      || link(p->from, p->to).blocked || !under_way(*p))
    return;
  p->place = listener_.destination(p->to, p->from, *head, p->body.size);
  if (p->place)
    std::memcpy(p->place.get(), p->body.data.get(), p->body.size / 2);
}

void round_net::arrive(const parcel_ptr& p) {
  auto& l = link(p->from, p->to);
  if (!members_[p->to].alive || !under_way(*p))
    return;
  if (l.blocked) {
    l.held.push_back([this, p] { arrive(p); });
    return;
  }
  run_on(p->to, [this, p] { send_part(*p); });
}

void round_net::send_part(parcel& p) {
  if (checksum(p.body.view()) != p.checksum)
    listener_.violated("the bytes of a part changed while they were under way");
  for (auto x : {static_cast<std::uint64_t>(now_.time_since_epoch().count()), std::uint64_t{p.from},
                 std::uint64_t{p.to}, std::uint64_t{p.what.index()}, p.checksum})
    trace_ = mix(trace_, x);
  if (p.body.empty())
    return listener_.arrived(p.to, p.from, std::move(p.what), {}, nullptr);
  payload body;
  if (p.place) {
    auto half = p.body.size / 2;
    std::memcpy(p.place.get() + half, p.body.data.get() + half, p.body.size - half);
    body = {std::exchange(p.place, nullptr), p.body.size};
  } else {
    body = copy_to_payload(p.body.view());
  }
  auto via = std::make_shared<receipt>(*this, p.from, p.to, p.body.size, p.generation);
  receipts_.push_back(via);
  p.body = {};
  listener_.arrived(p.to, p.from, std::move(p.what), std::move(body), via);
}

void round_net::widen(std::size_t from, std::size_t to, std::size_t bytes,
                      std::uint64_t generation) {
  at(link(to, from).delay, [this, from, to, bytes, generation] {
    auto& l = link(from, to);
    if (l.generation != generation)
      return;
    if (auto& back = link(to, from); back.blocked) {
      back.held.push_back(
        [this, from, to, bytes, generation] { widen(from, to, bytes, generation); });
      return;
    }
    l.window += bytes;
    pump(from, to);
  });
}

// -- broken links ---------------------------------------------------------------------------------

void round_net::unblock(std::size_t from, std::size_t to) {
  auto& l = link(from, to);
  if (--l.blocked > 0)
    return;
  auto held = std::exchange(l.held, {});
  for (auto& what : held)
    at(0ns, std::move(what));
  pump(from, to);
}

void round_net::break_link(std::size_t a, std::size_t b, duration grace, bool for_good) {
  for (auto* l : {&link(a, b), &link(b, a)}) {
    ++l->generation;
    l->cutoff = now_ + grace;
    l->waiting.clear();
    l->held.clear();
    l->sending = false;
    l->blocked = 0;
    l->window = options_.window_bytes;
    l->down = for_good;
  }
}

void round_net::reconnect(std::size_t a, std::size_t b, duration after) {
  for (auto* l : {&link(a, b), &link(b, a)}) {
    l->down = false;
    l->ready_at = now_ + after;
  }
}

void round_net::report_lost(std::size_t at, std::size_t whom, duration after) {
  on_member(at, after, [this, at, whom] { listener_.lost(at, whom); });
}

void round_net::if_still_linked(std::size_t a, std::size_t b, duration after,
                                std::function<void()> what) {
  at(after, [this, a, b, generation = link(a, b).generation, what = std::move(what)] {
    if (link(a, b).generation == generation)
      what();
  });
}

// -- faults --------------------------------------------------------------------------------------

void round_net::crash(std::size_t who, bool silently) {
  auto& victim = members_[who];
  if (!victim.alive)
    return;
  victim.alive = false;
  victim.backlog.clear();
  for (std::size_t other = 0; other < members_.size(); ++other) {
    if (other == who || link(who, other).down)
      continue;
    if (silently) {
      if_still_linked(who, other, detection(), [this, who, other] {
        break_link(who, other, 0ns, true);
        report_lost(other, who, 0ns);
      });
    } else {
      break_link(who, other, some(30ms), true);
      report_lost(other, who, some(50ms));
    }
  }
}

void round_net::freeze(std::size_t who, duration lasts) {
  auto& victim = members_[who];
  victim.frozen_until = std::max(victim.frozen_until, now_ + lasts);
  at(lasts, [this, who] { thaw(who); });
  for (std::size_t other = 0; other < members_.size(); ++other) {
    auto noticed = detection();
    if (other == who || link(who, other).down || noticed >= lasts)
      continue;
    if_still_linked(who, other, noticed, [this, who, other, left = lasts - noticed] {
      break_link(who, other, 0ns, true);
      report_lost(other, who, 0ns);
      report_lost(who, other, 0ns); // as soon as it is awake
      if_still_linked(who, other, left,
                      [this, who, other] { reconnect(who, other, 3 * link(who, other).delay); });
    });
  }
}

void round_net::partition(member_set side, duration lasts) {
  side.for_each([&](std::size_t a) {
    for (std::size_t b = 0; b < members_.size(); ++b) {
      if (side.contains(b) || link(a, b).down)
        continue;
      block(a, b);
      block(b, a);
      auto noticed = detection();
      if (noticed >= lasts) {
        if_still_linked(a, b, lasts, [this, a, b] {
          unblock(a, b);
          unblock(b, a);
        });
        continue;
      }
      if_still_linked(a, b, noticed, [this, a, b, left = lasts - noticed] {
        break_link(a, b, 0ns, true);
        bool first = random_.below(2) == 0;
        report_lost(a, b, first ? 0ns : some(options_.detector / 5));
        report_lost(b, a, first ? some(options_.detector / 5) : 0ns);
        if_still_linked(a, b, left, [this, a, b] { reconnect(a, b, 3 * link(a, b).delay); });
      });
    }
  });
}

void round_net::half_open(std::size_t a, std::size_t b) {
  if (link(a, b).down)
    return;
  block(a, b);
  if_still_linked(a, b, detection(), [this, a, b] {
    auto delay = link(b, a).delay;
    break_link(a, b, 0ns, true);
    report_lost(b, a, 0ns);
    report_lost(a, b, delay);
  });
}

void round_net::cut(std::size_t a, std::size_t b) {
  if (link(a, b).down)
    return;
  block(a, b);
  block(b, a);
  if_still_linked(a, b, detection(), [this, a, b] {
    break_link(a, b, 0ns, true);
    report_lost(a, b, 0ns);
    report_lost(b, a, some(options_.detector / 5));
  });
}

void round_net::reset(std::size_t a, std::size_t b) {
  if (link(a, b).down || !members_[a].alive || !members_[b].alive)
    return;
  break_link(a, b, some(20ms), false);
  reconnect(a, b, 3 * link(a, b).delay);
  report_lost(a, b, some(20ms));
  report_lost(b, a, some(20ms));
}

void round_net::slow_down(std::size_t a, std::size_t b, double bytes_per_second) {
  link(a, b).bytes_per_second = link(b, a).bytes_per_second = bytes_per_second;
}

} // namespace waggle::testing
