// publish_state ─► record in the DHT; get_state_snapshot (of a state_donor) ─► the bytes

#include "actors/service/state_publisher.hpp"

#include <charconv>

#include "actors/guard.hpp"
#include "actors/service/running_node.hpp"
#include "runtime/crypto/digest.hpp"

namespace waggle {

namespace {

constexpr auto lifetime = 5min; // of a record
constexpr auto announce_every = 2min;
constexpr auto look_every = 5s; // at our addresses
constexpr auto store_timeout = 10s;

} // namespace

state_publisher::state_publisher(caf::actor_config& cfg, const started_node& node)
  : state_publisher_base(cfg), ctx_(node.ctx), node_(node.node), links_(node.parts.switchboard),
    dht_(node.parts.dht) {
  end_on_exception(this, ctx_);
}

void state_publisher::on_exit() {
  if (donor_)
    send_exit(donor_, caf::exit_reason::user_shutdown);
  node_ = nullptr;
  links_ = nullptr;
  dht_ = nullptr;
  donor_ = nullptr;
}

state_publisher::behavior_type state_publisher::make_behavior() {
  monitor(node_);
  set_down_handler([this](const caf::down_msg& down) {
    if (!donor_ || down.source != donor_.address())
      return quit();
    ctx_.metrics->count_actor_restart("state-donor");
    ctx_.log->error("state-donor died and is started again: {}", to_string(from_caf(down.reason)));
    donor_ = nullptr;
    auto pause = milliseconds{100} * (1U << std::min(restarts_++, 8U));
    delayed_send(this, pause, begin_to_serve{});
  });
  serve_states();
  addresses_ = ctx_.own_record().addresses;
  announced_ = clock().now();
  delayed_send(this, look_every, announce_states{});
  return {
    [this](const get_state_snapshot& wanted) { return snapshot(wanted); },
    [this](const publish_state& msg) {
      published made{msg.name, {}};
      made.made.epoch = epoch_id{msg.version};
      made.made.state = source_of(msg.bytes);
      made.made.content = sha256(msg.bytes.view());
      announce(states_.insert_or_assign(branch_of(msg.name), std::move(made)).first->second);
      return caf::unit;
    },
    [this](begin_to_serve) { serve_states(); },
    [this](announce_states again) {
      auto before = std::exchange(addresses_, ctx_.own_record().addresses);
      if (addresses_ != before || clock().now() - announced_ >= announce_every) {
        announced_ = clock().now();
        for (const auto& [branch, state] : states_)
          announce(state);
      }
      delayed_send(this, look_every, again);
    },
  };
}

void state_publisher::serve_states() {
  donor_ = spawn<state_donor, caf::monitored>(ctx_, donor_config{}, snapshot_source_actor{this});
  send(links_, serve{service_topic::state, donor_});
}

digest state_publisher::branch_of(const std::string& name) {
  return sha256_stream{}.add("waggle state of a service").add(name).finish();
}

caf::result<state_snapshot> state_publisher::snapshot(const get_state_snapshot& wanted) const {
  auto found = states_.find(wanted.branch);
  if (found == states_.end())
    return to_caf(ec::not_found, "this peer has no such state");
  if (found->second.made.epoch < wanted.epoch_min)
    return to_caf(ec::epoch_mismatch, "this peer has an older version");
  return found->second.made;
}

/// The value: the version and our addresses, separated by blanks.
void state_publisher::announce(const published& what) {
  auto value = std::to_string(what.made.epoch.value());
  for (const auto& where : ctx_.own_record().addresses)
    value += " " + to_string(where);
  auto failed = [this, name = what.name](const failure& why) {
    ctx_.log->warn("no peer was told that this one has the state {}: {}", name, to_string(why));
  };
  auto entry = application_record(ctx_, key_of(what.name), {}, value, lifetime, ctx_.self.get());
  if (!entry)
    return failed(entry.error());
  request(dht_, store_timeout + 1s, store_record{std::move(*entry), store_timeout})
    .then([](const store_report&) { /* stored again soon */ },
          [failed](const caf::error& why) { failed(from_caf(why)); });
}

std::vector<peer_record> state_publisher::donors_in(const found_records& found,
                                                    std::uint64_t version_min,
                                                    const peer_id& self) {
  std::vector<peer_record> donors;
  for (const auto& entry : found.records) {
    std::string_view rest{entry.value};
    auto next = [&rest] {
      auto word = rest.substr(0, rest.find(' '));
      rest.remove_prefix(std::min(rest.size(), word.size() + 1));
      return word;
    };
    auto word = next();
    std::uint64_t version = 0;
    auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), version);
    peer_record donor{peer_id_of(entry.owner), entry.owner, {}, false};
    if (error != std::errc{} || version < version_min || donor.id == self)
      continue;
    while (!rest.empty() && donor.addresses.size() < addresses_max)
      if (auto where = parse_endpoint(next()))
        donor.addresses.push_back(*where);
    donors.push_back(std::move(donor));
  }
  return donors;
}

} // namespace waggle
