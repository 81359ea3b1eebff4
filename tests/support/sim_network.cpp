// This file is long: dials, links and faults are events of one network, and change the same nodes.

#include "tests/support/sim_network.hpp"

#include <algorithm>
#include <cstring>
#include <deque>

#include "runtime/core/check.hpp"
#include "runtime/core/frame_limits.hpp"
#include "runtime/net/refusals.hpp"

namespace waggle::net {

struct sim_network::node {
  std::string run_id;
  peer_record record;
  peer_claims claims;
  node_clock clock;
  std::shared_ptr<run_members> members;
  std::shared_ptr<node_transport> own;
  on_link accept;
  bool alive = true;
  bool stopped = false;
  std::vector<std::weak_ptr<sim_link>> links;
};

/// One end of a link.
class sim_network::sim_link final : public link, public std::enable_shared_from_this<sim_link> {
public:
  sim_link(sim_network& net, node_index own, node_index peer, bool outbound)
    : net_(net), own_(own), peer_(peer), outbound_(outbound), window_(net.options_.window_bytes) {
    remote_ = net.nodes_[peer]->record;
    claims_ = net.nodes_[peer]->claims;
  }

  [[nodiscard]] const peer_record& remote() const override { return remote_; }
  [[nodiscard]] peer_claims claims() const override { return claims_; }
  [[nodiscard]] bool outbound() const override { return outbound_; }

  void start(std::shared_ptr<link_listener> listener) override {
    listener_ = std::move(listener);
    started_ = true;
    auto early = std::exchange(early_, {});
    for (auto& f : early)
      net_.at(net_.now_, [me = shared_from_this(), f = std::move(f)]() mutable {
        me->deliver_now(std::move(f));
      });
    if (close_why_)
      net_.at(net_.now_, [me = shared_from_this()] { me->report_closed(); });
  }

  bool send(frame f) override {
    if (closed_ || f.header.size() > frame_header_bytes_max || f.body.size > frame_body_bytes_max)
      return false;
    if (!f.body.empty() && (!waiting_.empty() || f.body.size > window_)) {
      waiting_.push_back(std::move(f));
      return true;
    }
    window_ -= f.body.size;
    net_.transmit(shared_from_this(), std::move(f));
    return true;
  }

  void grant(std::size_t bytes) override {
    // Delivered like a frame; then the peer's end may send more.
    if (closed_ || !other_.lock())
      return;
    net_.travel(own_, peer_, [other = other_, bytes] {
      if (auto peer = other.lock())
        peer->widen(bytes);
    });
  }

  void hold(bool on) override {
    held_ = on;
    if (!on && !kept_.empty())
      net_.at(net_.now_, [me = shared_from_this()] { me->deliver_kept(); });
  }

  /// Includes bodies that have not arrived: a socket's reader would know them by their first bytes.
  [[nodiscard]] bool idle() const override {
    auto peer = other_.lock();
    return waiting_.empty() && bodies_under_way_ == 0 && (!peer || peer->bodies_under_way_ == 0);
  }

  void close(failure why) override {
    if (closed_)
      return;
    net_.schedule_close(shared_from_this(), why);
    end(std::move(why));
  }

  void widen(std::size_t bytes) {
    window_ = std::min(net_.options_.window_bytes, window_ + bytes);
    while (!closed_ && !waiting_.empty() && waiting_.front().body.size <= window_) {
      window_ -= waiting_.front().body.size;
      net_.transmit(shared_from_this(), std::move(waiting_.front()));
      waiting_.pop_front();
    }
  }

  /// This end learns that the link has ended.
  void end(failure why) {
    if (closed_)
      return;
    closed_ = true;
    waiting_.clear();
    close_why_ = std::move(why);
    if (started_)
      net_.at(net_.now_, [me = shared_from_this()] { me->report_closed(); });
  }

  void report_closed() {
    auto listener = std::exchange(listener_, nullptr);
    if (listener && net_.nodes_[own_]->alive)
      listener->on_close(*close_why_);
  }

  void deliver_kept() {
    for (; !held_ && !kept_.empty(); kept_.pop_front())
      hand_over(std::move(kept_.front()));
  }
  void deliver_now(frame f) {
    kept_.push_back(std::move(f));
    deliver_kept();
  }
  void hand_over(frame f) {
    if (!net_.nodes_[own_]->alive || net_.nodes_[own_]->stopped || !listener_)
      return;
    if (!f.body.empty())
      if (auto memory = listener_->body_memory(f.header, f.body.size)) {
        std::memcpy(memory.get(), f.body.data.get(), f.body.size);
        f.body.data = std::move(memory);
      }
    listener_->on_frame(std::move(f));
  }

  sim_network& net_;
  node_index own_;
  node_index peer_;
  bool outbound_;
  peer_record remote_;
  peer_claims claims_;
  std::weak_ptr<sim_link> other_;
  std::shared_ptr<link_listener> listener_;
  bool started_ = false;
  bool closed_ = false;
  std::optional<failure> close_why_;
  std::vector<frame> early_; // arrived before start()
  bool held_ = false;
  std::deque<frame> kept_;    // arrived while held
  std::deque<frame> waiting_; // bulk frames that wait for the window
  std::size_t window_;
  std::size_t bodies_under_way_ = 0; // from here to the other end
  steady_time link_free_;            // when the link has carried the bodies sent so far
  steady_time last_arrival_[2];      // control, bulk: order within a lane
};

class sim_network::node_transport final : public transport {
public:
  node_transport(sim_network& net, node_index own) : net_(net), own_(own) {}

  /// There is no HTTP in the simulation.
  result<std::vector<endpoint>> listen(const std::vector<endpoint>& where,
                                       on_link accept) override {
    if (!accept)
      return where;
    net_.nodes_[own_]->accept = std::move(accept);
    return std::vector{address_of(own_)};
  }

  void dial(const dial_target& to, milliseconds timeout, on_dialled done) override {
    net_.dial(own_, to, timeout, std::move(done));
  }

  void announce(peer_record self) override { net_.nodes_[own_]->record = std::move(self); }

  void stop() override {
    auto& me = *net_.nodes_[own_];
    if (me.stopped)
      return;
    for (const auto& weak : me.links)
      if (auto held = weak.lock())
        held->close({ec::shutting_down, {}});
    me.stopped = true;
    me.accept = nullptr;
  }

private:
  sim_network& net_;
  node_index own_;
};

sim_network::sim_network(options opts, steady_time start)
  : options_(opts), random_(random_source{opts.seed}.fork("network")), now_(start) {}

sim_network::~sim_network() {
  // The handlers of a link may own the link. Normally on_close releases them, but no more events
  // run here.
  for (const auto& each : nodes_)
    for (const auto& weak : each->links)
      if (auto held = weak.lock())
        held->listener_ = nullptr;
}

sim_network::node_index sim_network::add_node(std::string run_id, peer_record record,
                                              std::shared_ptr<const run_agreement> agreement) {
  auto index = nodes_.size();
  record.addresses.clear();
  if (!record.client_mode)
    record.addresses.push_back(address_of(index));
  auto fresh = std::make_unique<node>();
  fresh->run_id = std::move(run_id);
  fresh->record = std::move(record);
  fresh->claims = {index + 1, std::move(agreement)};
  fresh->own = std::make_shared<node_transport>(*this, index);
  nodes_.push_back(std::move(fresh));
  return index;
}

void sim_network::set_clock(node_index node, node_clock clock) {
  nodes_[node]->clock = std::move(clock);
}

void sim_network::set_members(node_index node, std::shared_ptr<run_members> members) {
  nodes_[node]->members = std::move(members);
}

/// What the handshake does: each end takes a newer list from the other, and judges both.
std::optional<failure> sim_network::compare_members(node_index from, node_index to) const {
  const auto& ours = nodes_[from]->members;
  const auto& theirs = nodes_[to]->members;
  if (!ours && !theirs)
    return std::nullopt;
  if (!ours || !theirs || ours->authority() != theirs->authority())
    return failure{ec::wrong_run, "the peers have different authorities, or one has none"};
  for (auto [taker, giver] : {std::pair{ours, theirs}, std::pair{theirs, ours}})
    if (auto list = giver->list())
      (void)taker->take(list->bytes());
  const auto& clock = nodes_[from]->clock.time;
  for (auto who : {from, to})
    if (auto why = ours->judge(nodes_[who]->record.id, clock ? clock->now() : swarm_time{});
        why.here.code != ec::none)
      return why.here;
  return std::nullopt;
}

std::shared_ptr<transport> sim_network::transport_of(node_index node) {
  return nodes_[node]->own;
}

endpoint sim_network::address_of(node_index node) {
  return {"sim-" + std::to_string(node), 7700};
}

const peer_record& sim_network::record_of(node_index node) const {
  return nodes_[node]->record;
}

// -- time ----------------------------------------------------------------------------------------

void sim_network::at(steady_time when, event what) {
  events_.emplace(std::pair{std::max(when, now_), sequence_++}, std::move(what));
}

std::optional<steady_time> sim_network::next_event_time() const {
  if (events_.empty())
    return std::nullopt;
  return events_.begin()->first.first;
}

void sim_network::run_until(steady_time until) {
  while (!events_.empty() && events_.begin()->first.first <= until) {
    auto next = events_.extract(events_.begin());
    now_ = next.key().first;
    next.mapped()();
  }
  now_ = std::max(now_, until);
}

steady_time sim_network::random_arrival() {
  auto spread = std::chrono::nanoseconds{options_.delay_max - options_.delay_min}.count();
  auto delay = std::chrono::nanoseconds{options_.delay_min}
               + std::chrono::nanoseconds{
                 static_cast<std::int64_t>(random_.unit() * static_cast<double>(spread))};
  if (options_.loss > 0 && random_.unit() < options_.loss)
    delay += options_.retransmission;
  return now_ + delay;
}

void sim_network::note(std::uint64_t a, std::uint64_t b, byte_span bytes) {
  auto mix = [this](std::uint64_t x) { trace_ = (trace_ ^ x) * 0x100000001b3U; };
  mix(static_cast<std::uint64_t>(now_.time_since_epoch().count()));
  mix(a);
  mix(b);
  std::size_t i = 0;
  for (; i + 8 <= bytes.size(); i += 8) {
    std::uint64_t word = 0;
    std::memcpy(&word, bytes.data() + i, 8);
    mix(word);
  }
  for (; i < bytes.size(); ++i)
    mix(std::to_integer<std::uint64_t>(bytes[i]));
}

// -- links ---------------------------------------------------------------------------------------

bool sim_network::blocked(node_index a, node_index b) const {
  return (partitioned_ && side_.contains(a) != side_.contains(b))
         || apart_.contains(std::minmax(a, b));
}

std::optional<failure> sim_network::compare_clocks(node_index from, node_index to) {
  const auto& ours = nodes_[from]->clock;
  const auto& theirs = nodes_[to]->clock;
  if (!ours.time || !theirs.time)
    return std::nullopt;
  auto offset = difference(theirs.time->now(), ours.time->now());
  if (ours.compared)
    ours.compared(nodes_[to]->record.id, offset);
  if (theirs.compared)
    theirs.compared(nodes_[from]->record.id, -offset);
  auto limit = std::min(ours.limits.refused, theirs.limits.refused);
  if (!beyond(offset, limit))
    return std::nullopt;
  return failure{ec::clock_skew, clock_sentence(offset, limit)};
}

void sim_network::dial(node_index from, const dial_target& whom, milliseconds timeout,
                       on_dialled done) {
  const auto& where = whom.where;
  auto fail_at = [this, from, done](steady_time when, ec code, std::string detail) {
    at(when, [this, from, done, code, detail = std::move(detail)] {
      if (nodes_[from]->alive && !nodes_[from]->stopped)
        done(failure{code, detail});
    });
  };
  std::optional<node_index> target;
  for (node_index i = 0; i < nodes_.size(); ++i)
    if (where == address_of(i))
      target = i;
  if (!target)
    return fail_at(now_, ec::unreachable, to_string(where) + ": the name is not found");
  if (blocked(from, *target))
    return fail_at(now_ + timeout, ec::timeout, to_string(where) + ": no answer");
  auto arrival = random_arrival();
  at(arrival, [this, from, to = *target, where, expected = whom.expected, timeout, done, fail_at,
               arrival] {
    auto& peer = *nodes_[to];
    if (!nodes_[from]->alive || nodes_[from]->stopped)
      return;
    if (blocked(from, to))
      return fail_at(arrival + timeout, ec::timeout, to_string(where) + ": no answer");
    if (!peer.alive || peer.stopped || !peer.accept)
      return fail_at(random_arrival(), ec::unreachable, to_string(where) + ": connection refused");
    if (peer.run_id != nodes_[from]->run_id)
      return fail_at(random_arrival(), ec::wrong_run, to_string(where) + ": another run");
    if (peer.record.id == nodes_[from]->record.id)
      return fail_at(random_arrival(), ec::duplicate_identity, to_string(where) + ": ourselves");
    if (auto why = compare_clocks(from, to))
      return fail_at(random_arrival(), why->code, to_string(where) + ": " + why->detail);
    if (auto why = compare_members(from, to))
      return fail_at(random_arrival(), why->code, to_string(where) + ": " + why->detail);
    const auto& ours = nodes_[from]->claims.agreement;
    if (auto why = ours && peer.claims.agreement ? disagreement(*ours, *peer.claims.agreement)
                                                 : std::nullopt)
      return fail_at(random_arrival(), ec::agreement_mismatch, to_string(where) + ": " + *why);
    if (!expected.is_zero() && peer.record.id != expected)
      return fail_at(random_arrival(), ec::bad_signature, to_string(where) + ": another peer");
    auto near = std::make_shared<sim_link>(*this, from, to, true);
    auto far = std::make_shared<sim_link>(*this, to, from, false);
    near->other_ = far;
    far->other_ = near;
    nodes_[from]->links.push_back(near);
    peer.links.push_back(far);
    note(from, to, as_byte_span("dial"));
    peer.accept(far);
    at(random_arrival(), [this, from, near, done] {
      if (nodes_[from]->alive && !nodes_[from]->stopped)
        done(std::shared_ptr<link>{near});
    });
  });
}

void sim_network::travel(node_index from, node_index to, event what) {
  if (blocked(from, to)) {
    held_.push_back([this, from, to, what = std::move(what)] { travel(from, to, what); });
    return;
  }
  at(random_arrival(), std::move(what));
}

void sim_network::transmit(const std::shared_ptr<sim_link>& from, frame f) {
  if (!nodes_[from->own_]->alive)
    return;
  if (!f.body.empty())
    ++from->bodies_under_way_;
  if (blocked(from->own_, from->peer_)) {
    held_.push_back(
      [this, from, f = std::move(f)]() mutable { schedule_arrival(from, std::move(f)); });
    return;
  }
  schedule_arrival(from, std::move(f));
}

void sim_network::schedule_arrival(const std::shared_ptr<sim_link>& from, frame f) {
  auto& last = from->last_arrival_[f.body.empty() ? 0 : 1];
  auto arrival = random_arrival();
  if (options_.bytes_per_second > 0 && !f.body.empty()) {
    std::chrono::duration<double> takes{static_cast<double>(f.body.size)
                                        / static_cast<double>(options_.bytes_per_second)};
    from->link_free_ =
      std::max(from->link_free_, now_) + std::chrono::duration_cast<steady_time::duration>(takes);
    arrival += from->link_free_ - now_;
  }
  last = std::max(last, arrival);
  at(last, [this, from, f = std::move(f)]() mutable { arrive(from, std::move(f)); });
}

void sim_network::schedule_close(const std::shared_ptr<sim_link>& from, const failure& why) {
  if (blocked(from->own_, from->peer_)) {
    held_.push_back([this, from, why] { schedule_close(from, why); });
    return;
  }
  failure reported{ec::peer_lost, "the connection was closed"};
  if (told_to_peer(why.code))
    reported = {why.code, "refused by the peer: " + why.detail};
  // After everything that was sent before.
  auto when = std::max({random_arrival(), from->last_arrival_[0], from->last_arrival_[1]});
  at(when, [other = from->other_, reported] {
    if (auto peer = other.lock())
      peer->end(reported);
  });
}

void sim_network::arrive(const std::shared_ptr<sim_link>& from, frame f) {
  if (blocked(from->own_, from->peer_)) {
    held_.push_back(
      [this, from, f = std::move(f)]() mutable { schedule_arrival(from, std::move(f)); });
    return;
  }
  if (!f.body.empty())
    --from->bodies_under_way_;
  auto to = from->other_.lock();
  if (!to || to->closed_ || !nodes_[to->own_]->alive)
    return;
  note(from->own_, to->own_, as_byte_span(f.header));
  note(from->own_, to->own_, f.body.view());
  body_bytes_delivered_ += f.body.size;
  if (!to->started_) {
    to->early_.push_back(std::move(f));
    return;
  }
  to->deliver_now(std::move(f));
}

// -- faults --------------------------------------------------------------------------------------

void sim_network::crash(node_index node, bool silently) {
  auto& victim = *nodes_[node];
  victim.alive = false;
  victim.accept = nullptr;
  note(node, node, as_byte_span("crash"));
  for (const auto& weak : victim.links) {
    auto held = weak.lock();
    if (!held || held->closed_)
      continue;
    held->closed_ = true;
    if (silently)
      continue;
    at(random_arrival(), [held] {
      if (auto peer = held->other_.lock())
        peer->end({ec::peer_lost, "the connection was reset"});
    });
  }
}

void sim_network::partition(const std::set<node_index>& side) {
  side_ = side;
  partitioned_ = true;
  note(side.size(), 0, as_byte_span("partition"));
}

void sim_network::heal() {
  partitioned_ = false;
  note(0, 0, as_byte_span("heal"));
  auto held = std::exchange(held_, {});
  for (auto& what : held)
    at(now_, std::move(what));
}

void sim_network::keep_apart(node_index a, node_index b) {
  apart_.insert(std::minmax(a, b));
}

void sim_network::reset_links(node_index a, node_index b) {
  for (const auto& weak : nodes_[a]->links)
    if (auto held = weak.lock(); held && held->peer_ == b && !held->closed_) {
      if (auto peer = held->other_.lock())
        peer->end({ec::peer_lost, "the connection was reset"});
      held->end({ec::peer_lost, "the connection was reset"});
    }
}

} // namespace waggle::net
