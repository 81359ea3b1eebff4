// publish_state ─► record in the DHT; get_state_snapshot (of a state_donor) ─► the bytes

#include "actors/service/state_publisher.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "actors/guard.hpp"
#include "actors/service/running_node.hpp"
#include "runtime/core/try.hpp"
#include "runtime/crypto/digest.hpp"

namespace waggle {

namespace {

constexpr auto look_every = 5s; // at our addresses
constexpr auto store_timeout = 10s;
constexpr std::string_view shared_with_nobody = "-"; // in place of a priority

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
  delayed_send(this, look_every, announce_states{});
  return {
    [this](const get_state_snapshot& wanted) { return snapshot(wanted); },
    [this](const publish_state& msg) {
      published next{msg, {}};
      if (!msg.make && msg.shares)
        next.made = *make(msg);
      announce(states_.insert_or_assign(branch_of(msg.name), std::move(next)).first->second);
      return caf::unit;
    },
    [this](begin_to_serve) { serve_states(); },
    [this](announce_states again) {
      auto before = std::exchange(addresses_, ctx_.own_record().addresses);
      for (auto& [branch, state] : states_)
        if (addresses_ != before || clock().now() - state.declared >= state.what.declare_period)
          announce(state);
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
  const auto& [what, made, declared] = found->second;
  if (!what.shares)
    return to_caf(ec::no_donor, "this peer gives its state to nobody");
  if (what.version < wanted.epoch_min.value())
    return to_caf(ec::epoch_mismatch, "this peer has an older version");
  if (!what.make)
    return made;
  auto now = make(what);
  if (now)
    return std::move(*now);
  ctx_.log->error("cannot give the state {} to a peer: {}", what.name, to_string(now.error()));
  return to_caf(ec::no_donor, "its donor cannot read it");
}

result<state_snapshot> state_publisher::make(const publish_state& what) const {
  WAGGLE_TRY(bytes, what.make ? what.make() : what.bytes);
  state_snapshot made;
  made.epoch = epoch_id{what.version};
  made.content = sha256(bytes->view());
  made.state = source_of(std::move(*bytes));
  return made;
}

/// The value: the version, the priority and our addresses, separated by blanks.
void state_publisher::announce(published& of) {
  const auto& what = of.what;
  of.declared = clock().now();
  auto value = fmt::format("{} ", what.version);
  value += what.shares ? fmt::format("{}", what.priority) : std::string{shared_with_nobody};
  for (const auto& where : ctx_.own_record().addresses)
    value += " " + to_string(where);
  auto failed = [this, name = what.name](const failure& why) {
    ctx_.log->warn("no peer was told that this one has the state {}: {}", name, to_string(why));
  };
  auto lifetime = std::max<milliseconds>(what.declare_period * 5 / 2, 2 * look_every);
  auto entry = application_record(ctx_, key_of(what.name), {}, value, lifetime, ctx_.self.get());
  if (!entry)
    return failed(entry.error());
  request(dht_, store_timeout + 1s, store_record{std::move(*entry), store_timeout})
    .then([](const store_report&) { /* stored again soon */ },
          [failed](const caf::error& why) { failed(from_caf(why)); });
}

state_donors state_publisher::donors_in(const found_records& found, std::uint64_t version_min,
                                        const peer_id& self, random_source random) {
  state_donors out;
  std::vector<std::pair<double, peer_record>> donors;
  for (const auto& entry : found.records) {
    std::string_view rest{entry.value};
    auto next = [&rest] {
      auto word = rest.substr(0, rest.find(' '));
      rest.remove_prefix(std::min(rest.size(), word.size() + 1));
      return word;
    };
    auto read = [](std::string_view word, auto& number) {
      auto end = word.data() + word.size();
      return std::from_chars(word.data(), end, number) == std::from_chars_result{end, {}};
    };
    std::uint64_t version = 0;
    double priority = 0;
    peer_record donor{peer_id_of(entry.owner), entry.owner, {}, false};
    if (!read(next(), version) || version < version_min || donor.id == self)
      continue;
    auto terms = next();
    out.refusing += terms == shared_with_nobody ? 1 : 0;
    if (!read(terms, priority) || !std::isfinite(priority))
      continue;
    while (!rest.empty() && donor.addresses.size() < addresses_max)
      if (auto where = parse_endpoint(next()))
        donor.addresses.push_back(*where);
    donors.emplace_back(priority, std::move(donor));
  }
  // They are sorted by key: else all peers would ask the same ones, and a key could be made to fit.
  random.shuffle(donors);
  std::ranges::stable_sort(donors, std::greater{}, [](const auto& each) { return each.first; });
  for (auto& [priority, donor] : donors)
    out.all.push_back(std::move(donor));
  return out;
}

} // namespace waggle
