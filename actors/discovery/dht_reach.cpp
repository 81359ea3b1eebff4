// a link that we dialled ─► (a moment later) dial_back to three peers ─► dialled_back ─► reachability
// another peer's dial_back ─► limits ─► connect_address at the host of its link and where it
//   announces ─► dialled_back
// a peer that dialled us ─► connect_address where it announces ─► reached: others may be told of it

#include "actors/discovery/dht_reach.hpp"

#include <algorithm>
#include <set>

#include <spdlog/logger.h>

#include "actors/caf_error.hpp"
#include "runtime/net/dial_policy.hpp"

namespace waggle {

namespace {

// An announced address of a peer that dialled us. Its lookup of itself waits for as long.
constexpr milliseconds try_timeout{1'000};
constexpr milliseconds try_again{60'000};
constexpr const char* path_mtu = "path_mtu";

std::string joined(const std::vector<endpoint>& all) {
  std::string out;
  for (const auto& each : all)
    out += (out.empty() ? "" : ", ") + to_string(each);
  return out;
}

} // namespace

dht_reach::dht_reach(dht_router_base* self, node_context ctx, reach_config config,
                     switchboard_actor switchboard, std::function<void(notice)> changed,
                     std::function<void(const peer_id&)> reached, std::function<void()> moved)
  : self_(self), ctx_(std::move(ctx)), config_(std::move(config)),
    switchboard_(std::move(switchboard)), changed_(std::move(changed)),
    reached_(std::move(reached)), moved_(std::move(moved)), reach_(config_.inquiries),
    limits_(config_.limits) {}

void dht_reach::on_exit() {
  waiting_.clear();
  switchboard_ = nullptr;
}

/// Those that this peer listens on, even while it acts as a client.
std::vector<endpoint> dht_reach::addresses() const {
  return ctx_.reach->addresses().value_or(ctx_.record.addresses);
}

void dht_reach::look_at_addresses() {
  if (!config_.read_addresses || ctx_.record.client_mode || now() < look_due_)
    return;
  looked_ = now();
  look_due_ = looked_ + config_.read_addresses_every;
  show_addresses(config_.read_addresses());
}

/// @param found those of this machine.
void dht_reach::show_addresses(std::vector<endpoint> found) {
  auto before = addresses();
  if (mapped_ && announces_mapped_ && std::ranges::find(found, *mapped_) == found.end())
    found.insert(found.begin(), *mapped_); // before those that only neighbours reach
  found.resize(std::min(found.size(), addresses_max));
  if (found == before)
    return;
  ctx_.log->info("the network has changed: this peer announces {}, no longer {}", joined(found),
                 joined(before));
  ctx_.reach->set_addresses(std::move(found));
  announce();
}

/// Once: from then on the mapping is kept.
void dht_reach::map_port() {
  auto own = addresses();
  if (!config_.map_port || own.empty() || std::exchange(asked_router_, true))
    return;
  auto address = caf::actor_cast<caf::weak_actor_ptr>(self_);
  config_.map_port(own.front().port, [address](const result<endpoint>& where) {
    if (auto self = caf::actor_cast<caf::strong_actor_ptr>(address))
      caf::anon_send(caf::actor_cast<punching_actor>(self), port_mapped{where});
  });
}

void dht_reach::on_mapped(const port_mapped& msg) {
  auto own = addresses();
  if (mapped_ && std::exchange(announces_mapped_, false))
    std::erase(own, *mapped_);
  mapped_.reset();
  unmapped_.reset();
  show_addresses(std::move(own));
  if (msg.where) {
    mapped_ = *msg.where;
    ctx_.log->info("the router passes connections to {} on to this peer", to_string(*mapped_));
  } else {
    unmapped_ = msg.where.error().detail;
    ctx_.log->info("the router was asked to pass connections on to this peer, and does not: {}",
                   *unmapped_);
  }
  reach_.ask_soon(now());
  go_on();
}

void dht_reach::announce() {
  if (config_.announce)
    config_.announce(ctx_.own_record());
  moved_();
}

/// The network may be another one now.
void dht_reach::look_soon() {
  look_due_ = std::min(look_due_, looked_ + 1s); // many dials may fail at once
}

void dht_reach::on_dial_failed() {
  look_soon();
  go_on();
}

void dht_reach::on_connected(const peer_id& peer) {
  auto link = ctx_.links->find(peer);
  if (addresses().empty())
    return;
  look_soon();
  bool known = link && !link->host().empty();
  reach_.connected(peer, known ? link->host() : std::string{}, known && link->outbound(), now());
  go_on();
}

void dht_reach::on_punched(const peer_id& peer) {
  reach_.punched(peer, now());
  go_on();
}

void dht_reach::on_missing(const peer_id& peer) {
  reach_.missing(peer, now());
  go_on();
}

void dht_reach::on_disconnected(const peer_id& peer) {
  reach_.disconnected(peer);
  tried_.erase(peer); // started again, it may listen elsewhere
  settle();           // the link may have shown that a path is narrow
}

void dht_reach::on_due(const inquiry_due& msg) {
  if (msg.number != inquiries_)
    return;
  due_at_.reset();
  go_on();
}

void dht_reach::go_on() {
  look_at_addresses();
  for (const auto& peer : reach_.due(now()))
    ask(peer);
  for (const auto& peer : reach_.links_due(now()))
    self_
      ->request(switchboard_, config_.dial_timeout + 1s,
                call_peer{peer, wire::dht_ping{}, config_.dial_timeout})
      .then([](const peer_answer&) { /* on_connected came before */ },
            [](const caf::error&) { /* tried again later */ });
  settle();
  auto next = reach_.next();
  if (config_.read_addresses)
    next = next ? std::min(*next, look_due_) : look_due_;
  if (next && (!due_at_ || *next < *due_at_)) {
    due_at_ = next;
    self_->delayed_send(self_, std::max(*next - now(), steady_time::duration{}),
                        inquiry_due{++inquiries_});
  }
}

void dht_reach::ask(const peer_id& peer) {
  std::set<std::uint16_t> ports;
  for (const auto& where : addresses())
    ports.insert(where.port);
  // Every other time the mapped port alone: otherwise we could not tell which one was reached.
  mapped_alone_ = mapped_ && !announces_mapped_ && !mapped_alone_;
  if (mapped_alone_)
    ports.clear();
  if (mapped_)
    ports.insert(mapped_->port);
  auto link = ctx_.links->find(peer);
  // A neighbour reaches us without the router, whose address it may not know.
  bool tells =
    mapped_alone_ && link
    && net::is_of_private_network(link->host()) == net::is_of_private_network(mapped_->host);
  auto answered = [this, peer, tells, asked = mapped_](net::dial_back_outcome outcome) {
    reach_.answered(peer, outcome, now());
    if (outcome == net::dial_back_outcome::reached && tells && asked == mapped_
        && !std::exchange(announces_mapped_, true))
      show_addresses(addresses());
    go_on();
  };
  auto patience = config_.dial_timeout + 2s;
  peer_record to{.id = peer};
  self_
    ->request(switchboard_, patience + 1s,
              call_peer{to, wire::dial_back{{ports.begin(), ports.end()}}, patience})
    .then(
      [answered](const peer_answer& answer) {
        const auto* found = std::get_if<wire::dialled_back>(&answer.what);
        bool tried = found != nullptr && found->outcome != ec::overloaded;
        answered(!tried                       ? net::dial_back_outcome::unknown
                 : found->outcome == ec::none ? net::dial_back_outcome::reached
                                              : net::dial_back_outcome::not_reached);
      },
      [answered](const caf::error&) { answered(net::dial_back_outcome::unknown); });
}

void dht_reach::on_unlinked(const member_unlinked& msg) {
  if (!config_.may_become_client || addresses().empty() || ctx_.links->find(msg.peer.id))
    return;
  reach_.unlinked(msg.peer, msg.stalled, now());
  go_on();
}

/// Acts on what is known now.
void dht_reach::settle() {
  if (reach_.unreachable())
    map_port();
  auto present = seen();
  if (present == told_)
    return;
  auto before = std::exchange(told_, present);
  if (config_.may_become_client && ctx_.reach->as_client() != reach_.client()) {
    ctx_.reach->set_as_client(reach_.client());
    announce();
  }
  if (told_.empty())
    ctx_.log->info(before.matter == path_mtu ? "large messages pass to and from all hosts again"
                   : reach_.unreachable()
                     ? "this peer has a direct link with each member that it meets"
                     : "other peers reach this one again");
  changed_(told_);
}

notice dht_reach::seen() const {
  std::string what;
  bool matters = reach_.client() || !config_.may_become_client;
  if (reach_.unreachable() && matters)
    what =
      "no other peer reaches this one: nobody that dialled it back got a connection"
      + (unmapped_ ? " (its router was asked to pass connections on: " + *unmapped_ + ")" : "");
  else if (const auto* member = reach_.unlinked())
    what = "this peer and peer " + short_name(member->id)
           + ", a member of the same group, do not reach each other";
  else if (auto host = ctx_.reach->narrow_path())
    return {path_mtu,
            "small messages pass to and from " + *host
              + ", large ones do not: something on the path drops large packets (path MTU); this "
                "peer uses small ones on the links that it dials there",
            "lower the MTU of the interface (ip link set dev IFACE mtu 1280), or let ICMP "
            "\"fragmentation needed\" pass"};
  else
    return {};
  return {"reach",
          what
            + (config_.may_become_client
                 ? ". It goes on as a client, which dials the others and reduces nothing"
                 : ". Only peers that it dials itself can use it"),
          "open or forward the announced port (" + joined(addresses())
            + "), or announce an address that others reach (HOST:PORT)"};
}

caf::result<outbound_answer> dht_reach::dial_back(const wire::dial_back& wanted,
                                                  const inbound_call& call) {
  if (call.host.empty() || !limits_.take(call.host, wanted.ports.size(), now()))
    return outbound_answer{wire::dialled_back{ec::overloaded}, {}};
  std::vector<endpoint> all;
  for (auto port : wanted.ports)
    all.push_back({call.host, port});
  // A peer with several addresses may listen on others than it dials from.
  const auto& announced = call.from.addresses;
  if (std::ranges::find(announced, call.host, &endpoint::host) == announced.end())
    for (const auto& where : announced)
      if (std::ranges::find(wanted.ports, where.port) != wanted.ports.end()
          && limits_.take(where.host, 1, now()))
        all.push_back(where);
  struct attempts {
    caf::typed_response_promise<outbound_answer> promise;
    std::size_t left;
    bool over = false;
  };
  auto state = std::make_shared<attempts>(
    attempts{self_->make_response_promise<outbound_answer>(), all.size()});
  auto ended = [state](ec outcome) {
    --state->left;
    if (state->over || (outcome != ec::none && state->left > 0))
      return;
    state->over = true;
    state->promise.deliver(outbound_answer{wire::dialled_back{outcome}, {}});
  };
  for (const auto& where : all)
    self_
      ->request(switchboard_, config_.dial_timeout + 1s,
                connect_address{where, config_.dial_timeout})
      .then(
        [this, ended, peer = call.from, where](const peer_connected& up) {
          if (up.peer.id != peer.id)
            return ended(ec::unreachable); // another one listens there
          if (std::ranges::find(peer.addresses, where) != peer.addresses.end())
            reached_(peer.id);
          ended(ec::none);
        },
        [ended](const caf::error& why) {
          auto code = from_caf(why).code;
          ended(code == ec::none ? ec::unreachable : code);
        });
  return state->promise;
}

bool dht_reach::may_follow(const peer_id& by) {
  constexpr std::size_t links_enough = 8; // to find the others
  auto link = ctx_.links->find(by);
  return link && link->outbound() && ctx_.links->peers().size() < links_enough
         && limits_.take(link->host(), 1, now());
}

void dht_reach::try_to_reach(const peer_record& peer) {
  std::erase_if(tried_, [&](const auto& each) { return now() - each.second.when >= try_again; });
  auto link = ctx_.links->find(peer.id);
  if (!link || was_tried(peer) || !tries_.take(link->host(), 1, now()))
    return;
  tried_.insert_or_assign(peer.id, attempt{now(), peer.addresses});
  waiting_.try_emplace(peer.id);
  try_next(peer, {peer.addresses.begin(), peer.addresses.end()});
}

/// Whether the addresses that it announces now were tried lately.
bool dht_reach::was_tried(const peer_record& peer) const {
  auto known = tried_.find(peer.id);
  return known != tried_.end() && known->second.addresses == peer.addresses;
}

/// The first of these counts as tried already.
void dht_reach::try_next(const peer_record& peer, std::deque<endpoint> left) {
  if (left.empty())
    return;
  auto where = left.front();
  left.pop_front();
  auto ended = [this, peer, left = std::move(left)](bool reached) {
    bool of_today = was_tried(peer) || !tried_.contains(peer.id);
    if (reached && of_today)
      reached_(peer.id);
    if (auto waiting = waiting_.extract(peer.id))
      for (const auto& then : waiting.mapped())
        then();
    auto link = ctx_.links->find(peer.id);
    if (reached || !of_today || left.empty() || !link)
      return;
    if (tries_.take(link->host(), 1, now()))
      try_next(peer, left);
    else
      tried_.erase(peer.id);
  };
  self_->request(switchboard_, try_timeout + 1s, connect_address{where, try_timeout})
    .then([ended, who = peer.id](const peer_connected& up) { ended(up.peer.id == who); },
          [ended](const caf::error&) { ended(false); });
}

void dht_reach::when_tried(const peer_id& peer, std::function<void()> then) {
  if (auto waiting = waiting_.find(peer); waiting != waiting_.end())
    waiting->second.push_back(std::move(then));
  else
    then();
}

} // namespace waggle
