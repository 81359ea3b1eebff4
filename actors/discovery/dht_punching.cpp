// a member without a link ─► introduce to a peer that both have dialled ─► punch_note to both
// punch_note ─► (a moment) ─► both dial ─► a link like any other ─► reachability
//                                       └ none ─► said in log and status, with what helps

#include "actors/discovery/dht_punching.hpp"

#include <algorithm>

#include <spdlog/logger.h>

#include "actors/caf_error.hpp"
#include "runtime/net/dial_policy.hpp"

namespace waggle {

namespace {

constexpr std::size_t outcomes_max = 8;
/// From the connection to the link: TLS and handshake.
constexpr milliseconds handshake_time{6'000};

} // namespace

dht_punching::dht_punching(dht_router_base* self, node_context ctx, punch_config config,
                           switchboard_actor switchboard,
                           std::function<void(const peer_id&)> missed,
                           std::function<void(std::vector<notice>)> told)
  : self_(self), ctx_(std::move(ctx)), config_(std::move(config)),
    switchboard_(std::move(switchboard)), missed_(std::move(missed)), told_(std::move(told)),
    broker_(config_.broker), questions_(config_.asked), limits_(config_.limits),
    asked_(config_.ask_again) {}

void dht_punching::on_exit() {
  switchboard_ = nullptr;
  config_.dial = nullptr;
}

void dht_punching::begin(const peer_id& peer) {
  const auto& self = ctx_.record.id;
  if (!config_.dial || ctx_.links->find(peer) || punched_.contains(self, peer, now())
      || asked_.take(self, peer, now()) != ec::none)
    return;
  // The other end asks the same peers in the same order, and whoever comes second is refused.
  std::deque<peer_id> others;
  for (const auto& other : ctx_.links->peers())
    if (auto link = ctx_.links->find(other);
        link && link->outbound() && link->ends() && !has_met(other))
      others.push_back(other);
  std::ranges::sort(others);
  others.resize(std::min(others.size(), config_.asked_max));
  ask(peer, std::move(others));
}

void dht_punching::ask(const peer_id& peer, std::deque<peer_id> others) {
  if (others.empty())
    return ctx_.log->debug("nobody that this peer has dialled is linked with peer {}",
                           short_name(peer));
  peer_record through{.id = others.front()};
  others.pop_front();
  self_
    ->request(switchboard_, config_.request_timeout + 1s,
              call_peer{through, wire::introduce{peer}, config_.request_timeout})
    .then(
      [this, peer, others](const peer_answer& answer) {
        const auto* found = std::get_if<wire::introduced>(&answer.what);
        bool done =
          found != nullptr && (found->outcome == ec::none || found->outcome == ec::rate_limited);
        if (!done) // otherwise its note comes, or has come
          ask(peer, others);
      },
      [this, peer, others](const caf::error&) { ask(peer, others); });
}

std::optional<net::punch_end> dht_punching::seen(const peer_id& peer) const {
  auto link = ctx_.links->find(peer);
  if (!link)
    return {};
  net::punch_end end{peer, !link->outbound(), {}, link->facts().round_trip};
  if (auto ends = link->ends())
    end.seen_at = ends->there;
  return end;
}

caf::result<outbound_answer> dht_punching::introduce(const wire::introduce& wanted,
                                                     const inbound_call& call) {
  auto refuse = [this](ec why) {
    ctx_.metrics->count_refused_input(why);
    return outbound_answer{wire::introduced{why}, {}};
  };
  auto one = seen(call.from.id);
  if (!one || call.host.empty() || !questions_.take(call.host, 1, now()))
    return refuse(ec::overloaded);
  auto other = seen(wanted.peer);
  auto moments = broker_.introduce(*one, other, now());
  if (!moments)
    return refuse(moments.error().code);
  auto call_on = [this](const net::punch_end& to, const net::punch_end& of, milliseconds wait) {
    auto ms = static_cast<std::uint32_t>(wait.count());
    ctx_.links->tell(to.peer, wire::punch_note{of.peer, *of.seen_at, ms}, {});
  };
  call_on(*one, *other, moments->one);
  call_on(*other, *one, moments->other);
  return outbound_answer{wire::introduced{ec::none}, {}};
}

void dht_punching::on_note(const wire::punch_note& note, const peer_id& by) {
  auto link = ctx_.links->find(by);
  auto ends = link && link->outbound() && !has_met(by) ? link->ends() : std::nullopt;
  auto kind = net::kind_of(note.where.host);
  bool plausible = ends && note.peer != ctx_.record.id && note.peer != by
                   && kind != net::host_kind::nowhere && kind != net::host_kind::name
                   && (kind == net::host_kind::usual || kind == net::kind_of(ends->there.host));
  if (!plausible)
    return ctx_.metrics->count_refused_input(ec::protocol_violation);
  if (!config_.dial || ctx_.links->find(note.peer))
    return;
  if (!limits_.take(link->host(), 1, now())
      || punched_.take(ctx_.record.id, note.peer, now()) != ec::none)
    return ctx_.metrics->count_refused_input(ec::rate_limited);
  under_way_.insert_or_assign(note.peer, by);
  self_->delayed_send(self_, milliseconds{note.wait_ms},
                      punch_due{note.peer, ends->here, note.where});
}

void dht_punching::on_due(const punch_due& msg) {
  if (!under_way_.contains(msg.peer))
    return;
  net::dial_target to{msg.where, {}, msg.peer, msg.from, ctx_.record.id > msg.peer};
  auto address = caf::actor_cast<caf::weak_actor_ptr>(self_);
  config_.dial(to, config_.dial_timeout, [address, peer = msg.peer](failure why) {
    if (auto self = caf::actor_cast<caf::strong_actor_ptr>(address))
      caf::anon_send(caf::actor_cast<punching_actor>(self), punch_ended{peer, std::move(why)});
  });
}

void dht_punching::on_ended(const punch_ended& msg) {
  if (!under_way_.contains(msg.peer))
    return;
  if (msg.why.code == ec::none) // the link comes, or the other end refuses us
    self_->delayed_send(self_, handshake_time,
                        punch_ended{msg.peer, {ec::timeout, "it does not finish the handshake"}});
  else
    failed(msg.peer, to_string(msg.why));
}

bool dht_punching::on_connected(const peer_id& peer) {
  auto found = under_way_.extract(peer);
  if (!found)
    return false;
  met_.insert(peer);
  notice met{"punched",
             "a direct link with peer " + short_name(peer)
               + " passes the routers of both: both dialled when peer " + short_name(found.mapped())
               + " said",
             {}};
  ctx_.log_caused("punched", now(), spdlog::level::info, met.text());
  tell(peer, std::move(met));
  return true;
}

void dht_punching::failed(const peer_id& peer, const std::string& why) {
  auto through = under_way_.extract(peer).mapped();
  notice none{"punched",
              "no direct link with peer " + short_name(peer) + ", although both dialled when peer "
                + short_name(through) + " said (" + why
                + "): a router or firewall gives each connection another port, or lets none pass",
              "open or forward the port of one of the two; until then they train through members "
              "that both reach, or a waggle node"};
  ctx_.log_caused("not punched", now(), spdlog::level::warn, none.text());
  tell(peer, std::move(none));
  if (asked_.contains(ctx_.record.id, peer, now())) // nobody else makes us a client
    missed_(peer);
}

void dht_punching::tell(const peer_id& peer, notice what) {
  std::erase_if(outcomes_, [&](const auto& each) { return each.first == peer; });
  outcomes_.emplace_back(peer, std::move(what));
  if (outcomes_.size() > outcomes_max)
    outcomes_.pop_front();
  std::vector<notice> all;
  for (const auto& [of, each] : outcomes_)
    all.push_back(each);
  told_(std::move(all));
}

} // namespace waggle
