#include "actors/discovery/dht_joining.hpp"

#include <algorithm>
#include <iterator>
#include <set>
#include <tuple>
#include <utility>

#include <spdlog/logger.h>

#include "actors/caf_error.hpp"
#include "runtime/core/log_about.hpp"
#include "runtime/net/dial_policy.hpp"
#include "runtime/net/refusals.hpp"

namespace waggle {

namespace {

/// The other end does not belong to the run, and is not dialled again. If it is this one, it
/// knocks: the next list may name it.
bool is_no_member(const node_context& ctx, const failure& why) {
  return why.code == ec::not_a_member && ctx.members
         && ctx.members->judge(ctx.record.id, ctx.wall->now()).here.code == ec::none;
}

} // namespace

dht_joining::dht_joining(dht_router_base* self, node_context ctx, joining_config config,
                         switchboard_actor switchboard, std::function<void(bool reached)> dialled)
  : self_(self), ctx_(std::move(ctx)), config_(config), switchboard_(std::move(switchboard)),
    dialled_(std::move(dialled)), bootstrap_(config.pauses, ctx_.randomness("bootstrap")) {}

void dht_joining::begin(const bootstrap_from& msg) {
  std::set<endpoint> names;
  if (config_.resolve)
    std::copy_if(msg.addresses.begin(), msg.addresses.end(), std::inserter(names, names.end()),
                 [](const endpoint& where) { return !net::is_numeric(where.host); });
  bootstrap_.join_at(msg.addresses, msg.known, now(), names);
  dial_due();
}

void dht_joining::on_retry(const retry_bootstrap& msg) {
  if (msg.number != retries_)
    return;
  retry_at_.reset();
  dial_due();
}

bool dht_joining::on_connected(const peer_record& peer) {
  bool joins = bootstrap_.connected(peer, now());
  dial_due();
  return joins;
}

void dht_joining::on_disconnected(const peer_disconnected& msg) {
  auto code = is_no_member(ctx_, msg.why) ? ec::shutting_down : msg.why.code;
  bootstrap_.disconnected(msg.peer, code, now(), !ctx_.rounds->has_averaged_with(msg.peer));
  dial_due();
}

/// Resolves the names and dials the addresses that are due, and schedules a retry for when the next
/// one is.
void dht_joining::dial_due() {
  for (const auto& name : bootstrap_.unresolved(now()))
    resolve(name);
  for (const auto& where : bootstrap_.due(now()))
    dial(where);
  auto next = bootstrap_.next();
  if (next && (!retry_at_ || *next < *retry_at_)) {
    retry_at_ = next;
    self_->delayed_send(self_, std::max(*next - now(), steady_time::duration{}),
                        retry_bootstrap{++retries_});
  }
  notify_listeners();
}

void dht_joining::resolve(const endpoint& name) {
  auto to = caf::actor_cast<caf::weak_actor_ptr>(self_);
  config_.resolve(name, config_.dial_timeout, [name, to](result<std::vector<endpoint>> found) {
    if (auto self = caf::actor_cast<caf::strong_actor_ptr>(to))
      caf::anon_send(caf::actor_cast<joining_actor>(self), name_resolved{name, std::move(found)});
  });
}

void dht_joining::on_resolved(const name_resolved& msg) {
  log_about about{{.reason = msg.found ? ec::none : msg.found.error().code}};
  if (bootstrap_.resolved(msg.name, msg.found, now()))
    ctx_.log->warn("could not join through {}: {}", to_string(msg.name),
                   to_string(msg.found.error()));
  dial_due();
}

void dht_joining::dial(const endpoint& where) {
  auto given = bootstrap_.given_for(where);
  self_
    ->request(switchboard_, config_.dial_timeout + 1s,
              connect_address{where, config_.dial_timeout, given})
    .then(
      [this, where](const peer_connected& up) {
        bootstrap_.reached(where, up.peer.id, now());
        dialled_(true);
        dial_due();
      },
      [this, where, given](const caf::error& error) {
        on_dial_failed(where, given, from_caf(error));
        dialled_(false);
        dial_due();
      });
}

void dht_joining::on_dial_failed(const endpoint& where, const std::optional<endpoint>& given,
                                 failure why) {
  // A second process with our identity is another peer.
  if (why.code == ec::duplicate_identity && !net::started_wrongly(why)) {
    ctx_.log->debug("{} is this peer itself", to_string(where));
    return bootstrap_.met_ourselves(where, now());
  }
  if (is_no_member(ctx_, why))
    why.code = ec::wrong_run;
  auto prefix = to_string(where) + ": "; // from the transport; the sentence below has it
  if (why.detail.starts_with(prefix))
    why.detail.erase(0, prefix.size());
  auto level = bootstrap_.failed(where, why, now()) ? spdlog::level::warn : spdlog::level::debug;
  auto through = given && *given != where ? to_string(*given) + " at " : std::string{};
  log_about about{{.reason = why.code}};
  ctx_.log->log(level, "could not join through {}{}: {}", through, to_string(where),
                to_string(why));
}

void dht_joining::on_exit() {
  listeners_.clear();
  switchboard_ = nullptr;
}

// -- listeners -----------------------------------------------------------------------------------

void dht_joining::subscribe(const dht_listener_actor& listener) {
  listeners_.push_back(listener);
  self_->monitor(listener);
  self_->send(listener, status());
}

void dht_joining::on_down(const caf::actor_addr& source) {
  std::erase_if(listeners_,
                [&](const dht_listener_actor& listener) { return listener.address() == source; });
}

void dht_joining::notify_listeners() {
  auto content = [](const dht_status& s) {
    return std::tie(s.bootstrapped, s.addresses_known, s.initial_peers, s.bootstrap_failures,
                    s.notices, s.punches);
  };
  auto present = status();
  if (!present.notices.empty() && present.notices != std::exchange(logged_, present.notices))
    ctx_.log->warn("{}", text_of(present.notices));
  if (content(present) == content(told_))
    return;
  told_ = present;
  for (const auto& listener : listeners_)
    self_->send(listener, present);
}

void dht_joining::show_reach(notice what) {
  reach_ = std::move(what);
  notify_listeners();
}

void dht_joining::show_punches(std::vector<notice> all) {
  punches_ = std::move(all);
  notify_listeners();
}

dht_status dht_joining::status() const {
  dht_status out;
  out.bootstrapped = bootstrap_.joined();
  out.addresses_known = bootstrap_.addresses_known();
  out.initial_peers = static_cast<std::uint32_t>(bootstrap_.initial_addresses());
  out.bootstrap_failures = bootstrap_.failures();
  out.punches = punches_;
  for (const auto& each : {bootstrap_.seen(), reach_})
    if (!each.empty())
      out.notices.push_back(each);
  return out;
}

} // namespace waggle
