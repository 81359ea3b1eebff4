#include "tests/runtime/allreduce/swarm/round_swarm.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "runtime/core/check.hpp"
#include "tests/support/fake_signatures.hpp"

namespace waggle::testing {

namespace {

constexpr std::size_t fill_steps = 8;

float_vector random_values(random_source random, std::size_t n) {
  float_vector out(n);
  for (auto& x : out)
    x = static_cast<float>(4 * random.unit() - 2);
  return out;
}

} // namespace

/// The round_port of one member.
class round_swarm::port final : public fake_signing_port {
public:
  port(round_swarm& swarm, std::size_t self)
    : fake_signing_port(swarm.plan().members[self].peer.id), swarm_(swarm), self_(self) {}

  void send(const peer_record& to, wire::event what, payload body) override {
    const auto& members = swarm_.plan().members;
    auto found = std::find_if(members.begin(), members.end(),
                              [&](const round_member& m) { return m.peer.id == to.id; });
    swarm_.send(self_, static_cast<std::size_t>(found - members.begin()), std::move(what),
                std::move(body));
  }
  bool reduce(const reduce_part& what) override {
    if (!swarm_.scene_.offload)
      return false;
    auto job = [this, engine = swarm_.members_[self_].engine_alive, what] {
      auto running = engine.lock();
      if (!running)
        return;
      auto sum = waggle::reduce(what);
      if (swarm_.planted_ != nullptr)
        swarm_.planted_->on_reduced(self_, sum);
      running->on_reduced(sum);
    };
    swarm_.net_.on_member(self_, 100us * static_cast<int>(1 + self_ % 5), std::move(job));
    return true;
  }
  digest secret(const round_id&, std::uint32_t view) override {
    return sha256(std::to_string(view) + " of " + std::to_string(self_) + " in "
                  + std::to_string(swarm_.scene_.seed));
  }
  void count_refused(ec why) override {
    // All members are honest: a refused message was changed by a saboteur, or is a bug.
    if (swarm_.planted_ == nullptr)
      swarm_.violated("member " + std::to_string(self_)
                      + " refused what another sent: " + waggle::to_string(failure{why, {}}));
  }
  void log(const std::string& what) override { swarm_.note(self_, what); }
  void finished(round_finished how) override { swarm_.on_finished(self_, std::move(how)); }

private:
  round_swarm& swarm_;
  std::size_t self_;
};

round_swarm::round_swarm(round_scenario scene, saboteur* planted)
  : scene_(std::move(scene)), planted_(planted), net_(scene_.seed, scene_.net, *this),
    members_(scene_.plan.members.size()), pending_(scene_.faults) {
  WAGGLE_CHECK(validate_plan(scene_.plan).ok(), "scenario " + std::to_string(scene_.seed));
  random_source random{scene_.seed};
  for (std::size_t i = 0; i < members_.size(); ++i) {
    auto& m = members_[i];
    m.memory = {vector_pool::make(2), buffer_pool::make(1_MiB)};
    m.rounds = std::make_unique<round_registry>(round_registry::limits{},
                                                [this, i](const peer_record& to, wire::event what) {
                                                  port{*this, i}.send(to, std::move(what), {});
                                                });
    m.values_before =
      random_values(random.fork("values " + std::to_string(i)), scene_.plan.elements);
    m.values = std::make_shared<float_vector>(m.values_before);
    if (!scene_.fills.empty()) {
      std::fill(m.values->begin(), m.values->end(), std::numeric_limits<float>::quiet_NaN());
      m.fills = std::make_shared<filling>();
    }
    for (std::size_t j = 0; j < i; ++j)
      if (plan().members[i].mode == member_mode::client
          && plan().members[j].mode == member_mode::client)
        net_.never_link(i, j);
  }
}

round_swarm::~round_swarm() = default;

// -- the members ---------------------------------------------------------------------------------

void round_swarm::begin(std::size_t who) {
  auto& m = members_[who];
  round_request request{plan(), who, m.values, scene_.weights[who]};
  request.fills = m.fills;
  m.engine = std::make_shared<round_engine>(std::move(request), scene_.config, m.memory,
                                            std::make_shared<port>(*this, who),
                                            [this] { return net_.now(); });
  m.engine_alive = m.engine;
  m.began = net_.now();
  m.rounds->begin(m.engine, [](const peer_record&, const wire::event&) {});
  tick(who);
  if (m.fills)
    fill(who, fill_steps);
}

/// Writes a part of the vector, from its end to its front, and then the next one.
void round_swarm::fill(std::size_t who, std::size_t step) {
  auto& m = members_[who];
  auto at = [&](std::size_t i) { return plan().elements * i / fill_steps; };
  std::copy(m.values_before.begin() + static_cast<std::ptrdiff_t>(at(step)), m.values_before.end(),
            m.values->begin() + static_cast<std::ptrdiff_t>(at(step)));
  bool spoils = scene_.spoiled == who;
  if (step == fill_steps / 2 && (spoils || scene_.stalled == who)) {
    if (m.engine && !m.end) { // as one whose caller cancels, or that is absent
      fault f{.kind = spoils ? fault_kind::cancel : fault_kind::absent, .who = who};
      struck_.push_back(f);
      last_strike_ = net_.now();
    }
    excuse(who);
    if (spoils)
      m.fills->fail();
  } else if (step == 0) {
    m.fills->complete();
  } else {
    m.fills->filled(at(step), plan().elements);
    net_.on_member(who, scene_.fills[who] / fill_steps, [this, who, step] { fill(who, step - 1); });
  }
  if (m.engine)
    m.engine->ship();
}

void round_swarm::tick(std::size_t who) {
  net_.on_member(who, std::min<round_net::duration>(scene_.config.stall_timeout / 8, 500ms),
                 [this, who] {
                   auto& m = members_[who];
                   if (m.end)
                     return;
                   if (planted_ == nullptr || planted_->ticks(who))
                     m.engine->check();
                   tick(who);
                 });
}

void round_swarm::on_finished(std::size_t who, round_finished how) {
  auto& m = members_[who];
  if (m.end)
    return violated("member " + std::to_string(who) + " reported twice");
  m.end = std::move(how);
  m.ended_at = net_.now();
  if (m.end->report.outcome != round_outcome::failed)
    new_finishers_.push_back(who);
  // As the round's actor does when the report has been delivered.
  net_.on_member(who, 1ms, [this, who] {
    auto& m = members_[who];
    m.rounds->finish(plan().id, m.engine->promise(), net_.now());
    m.engine.reset();
  });
}

void round_swarm::send(std::size_t from, std::size_t to, wire::event what, payload body) {
  if (from == to)
    return violated("member " + std::to_string(from) + " talks to itself");
  if (planted_ != nullptr && !planted_->on_send(*this, from, to, what, body))
    return;
  net_.send(from, to, std::move(what), std::move(body));
}

std::shared_ptr<std::byte> round_swarm::destination(std::size_t to, std::size_t from,
                                                    const wire::part& head, std::size_t bytes) {
  return members_[to].rounds->destination(plan().members[from].peer.id, head, bytes);
}

void round_swarm::arrived(std::size_t to, std::size_t from, wire::event what, payload body,
                          const std::shared_ptr<net::link>& via) {
  count(moment::delivery);
  if (std::holds_alternative<wire::round_prepared>(what))
    count(moment::prepared);
  else if (std::holds_alternative<wire::round_propose>(what))
    count(moment::proposal);
  else if (std::holds_alternative<wire::round_promise>(what))
    count(moment::promise);
  if (journal_)
    note(to, from, what);
  inbound_event event{plan().members[from].peer, std::move(what), std::move(body), via};
  if (planted_ != nullptr && !planted_->on_arrival(*this, to, from, event))
    return event.release();
  members_[to].rounds->deliver(event, net_.now());
}

void round_swarm::inject(std::size_t from, std::size_t to, wire::event what) {
  net_.on_member(to, 500us, [this, from, to, what = std::move(what)] {
    members_[to].rounds->deliver({plan().members[from].peer, what, {}, nullptr}, net_.now());
  });
}

void round_swarm::lost(std::size_t at, std::size_t whom) {
  if (journal_)
    *journal_ += std::to_string(seconds_of(net_.now().time_since_epoch())) + " "
                 + std::to_string(at) + " lost " + std::to_string(whom) + "\n";
  if (auto& m = members_[at]; m.engine)
    m.engine->on_lost(plan().members[whom].peer.id, ec::peer_lost);
}

bool round_swarm::is_running(std::size_t member) const {
  const auto& m = members_[member];
  return m.engine && !m.end;
}

wire::round_promise round_swarm::promise_of(std::size_t member) const {
  const auto& m = members_[member];
  if (m.end)
    return m.end->promise;
  return m.engine ? m.engine->promise() : wire::round_promise{};
}

// -- the round -----------------------------------------------------------------------------------

void round_swarm::run() {
  for (const auto& f : pending_)
    if (f.kind == fault_kind::leave || f.kind == fault_kind::absent)
      strike(f);
  std::erase_if(pending_, [](const fault& f) {
    return f.kind == fault_kind::leave || f.kind == fault_kind::absent;
  });
  for (std::size_t i = 0; i < members_.size(); ++i)
    if (members_[i].takes_part)
      net_.on_member(i, scene_.begins[i], [this, i] { begin(i); });
  while (!all_ended() && net_.now() <= latest_end() && net_.step()) {
    for (auto who : std::exchange(new_finishers_, {})) {
      count(moment::finish);
      last_finisher_ = who;
      check_quorum(who);
    }
    strike_what_is_due();
  }
  if (!all_ended())
    return violated("a round hangs");
  forget_all();
  for (const auto& m : members_)
    if (m.end)
      check_end(m);
  check_agreement();
  check_blameless();
  check_left_behind();
}

/// Runs until nothing is in transit: events that members park for rounds that never begin hold up
/// the messages behind them.
void round_swarm::forget_all() {
  std::size_t unwanted = 1;
  while (unwanted > 0) {
    while (net_.step()) {
    }
    unwanted = 0;
    for (std::size_t i = 0; i < members_.size(); ++i)
      if (net_.alive(i))
        unwanted +=
          members_[i].rounds->forget_old(net_.now() + round_registry::limits{}.remembered_for);
  }
}

bool round_swarm::all_ended() const {
  for (std::size_t i = 0; i < members_.size(); ++i)
    if (net_.alive(i) && members_[i].takes_part && !members_[i].end)
      return false;
  return true;
}

/// The latest time at which all members have ended: a member may begin late, or be frozen at its
/// deadline.
steady_time round_swarm::latest_end() const {
  auto frozen = 0ns;
  for (const auto& f : scene_.faults)
    if (f.kind == fault_kind::freeze || f.kind == fault_kind::nap)
      frozen += f.lasts;
  return steady_time{} + *std::max_element(scene_.begins.begin(), scene_.begins.end()) + frozen
         + scene_.config.deadline + 1s;
}

void round_swarm::strike_what_is_due() {
  for (std::size_t i = 0; i < pending_.size();) {
    if (counts_[static_cast<std::size_t>(pending_[i].when)] <= pending_[i].count) {
      ++i;
      continue;
    }
    auto due = pending_[i];
    pending_.erase(pending_.begin() + static_cast<std::ptrdiff_t>(i));
    strike(due);
  }
}

void round_swarm::strike(fault f) {
  if (f.who == the_finisher) {
    f.who = last_finisher_;
    if (f.other == f.who)
      f.other = (f.who + 1) % members_.size();
  }
  auto& m = members_[f.who];
  bool running = m.engine && !m.end && net_.alive(f.who);
  switch (f.kind) {
    case fault_kind::crash:
    case fault_kind::vanish:
      net_.crash(f.who, f.kind == fault_kind::vanish);
      excuse(f.who);
      break;
    case fault_kind::nap:
      net_.freeze(f.who, f.lasts);
      delay(member_set{std::uint64_t{1} << f.who});
      break;
    case fault_kind::freeze:
      net_.freeze(f.who, f.lasts);
      excuse(f.who);
      break;
    case fault_kind::hiccup:
      net_.partition(f.side, f.lasts);
      delay(everybody());
      break;
    case fault_kind::partition:
      net_.partition(f.side, f.lasts);
      (round_rules{plan()}.is_quorum(f.side) ? everybody() - f.side : f.side)
        .for_each([this](std::size_t i) { excuse(i); });
      break;
    case fault_kind::half_open:
      net_.half_open(f.who, f.other);
      excuse(f.who), excuse(f.other);
      break;
    case fault_kind::cut:
      net_.cut(f.who, f.other);
      excuse(f.who), excuse(f.other);
      break;
    case fault_kind::reset:
      net_.reset(f.who, f.other);
      excuse(f.who), excuse(f.other);
      break;
    case fault_kind::slow:
      net_.slow_down(f.who, f.other, f.bytes_per_second);
      delay(everybody());
      break;
    case fault_kind::stuck:
      net_.slow_down(f.who, f.other, f.bytes_per_second);
      excuse(f.who), excuse(f.other);
      break;
    case fault_kind::cancel:
    case fault_kind::break_off:
      if (!running)
        return;
      excuse(f.who);
      m.broken_off = f.kind == fault_kind::break_off;
      net_.on_member(f.who, 0ns, [this, f] {
        auto& m = members_[f.who];
        if (!m.engine || m.end)
          return;
        if (f.kind == fault_kind::cancel)
          m.engine->cancel({ec::cancelled, "test"});
        else
          m.engine->break_off({ec::internal, "test"});
      });
      break;
    case fault_kind::leave:
    case fault_kind::absent:
      excuse(f.who);
      m.takes_part = false;
      if (f.kind == fault_kind::leave)
        net_.on_member(f.who, scene_.begins[f.who], [this, who = f.who] {
          members_[who].rounds->finish(plan().id, {{}, plan().id, {}}, net_.now());
          for (std::size_t i = 0; i < members_.size(); ++i)
            if (i != who)
              send(
                who, i,
                wire::round_suspect{plan().id, 0, static_cast<std::uint32_t>(who), ec::cancelled},
                {});
        });
      break;
  }
  if (journal_)
    *journal_ +=
      std::to_string(seconds_of(net_.now().time_since_epoch())) + " " + testing::describe(f) + "\n";
  struck_.push_back(f);
  last_strike_ = net_.now();
}

void round_swarm::delay(member_set whom) {
  (delayed_ & whom).for_each([this](std::size_t i) { excuse(i); });
  delayed_ = delayed_ | whom;
}

std::size_t round_swarm::finished() const {
  return static_cast<std::size_t>(
    std::count_if(members_.begin(), members_.end(), [](const member& m) {
      return m.end && m.end->report.outcome != round_outcome::failed;
    }));
}

bool round_swarm::shrunk() const {
  return std::any_of(members_.begin(), members_.end(), [](const member& m) {
    return m.end && m.end->report.outcome == round_outcome::shrunk;
  });
}

void round_swarm::violated(const std::string& what) {
  if (violation_.empty())
    violation_ = what;
}

void round_swarm::note(std::size_t at, const std::string& what) {
  if (journal_)
    *journal_ += std::to_string(seconds_of(net_.now().time_since_epoch())) + " "
                 + std::to_string(at) + " " + what + "\n";
}

void round_swarm::note(std::size_t to, std::size_t from, const wire::event& what) {
  auto view = [](const round_view& v) {
    return std::to_string(v.number) + " of " + std::to_string(v.contributors) + " by "
           + std::to_string(v.participants) + (v.adopted ? " adopted" : "");
  };
  std::string said;
  if (const auto* part = std::get_if<wire::part>(&what))
    said = std::array{"contribution ", "result ", "repair ",
                      "evidence "}[static_cast<std::size_t>(part->kind)]
           + std::to_string(part->index) + " view " + std::to_string(part->view);
  else if (const auto* pledge = std::get_if<wire::round_pledge>(&what))
    said = "pledge of " + std::to_string(pledge->member) + " view " + std::to_string(pledge->view);
  else if (const auto* share = std::get_if<wire::round_key_share>(&what))
    said = "share of " + std::to_string(share->member) + " view " + std::to_string(share->view);
  else if (const auto* checked = std::get_if<wire::round_checked>(&what))
    said = "checked view " + std::to_string(checked->view);
  else if (const auto* challenge = std::get_if<wire::round_challenge>(&what))
    said = "challenge " + std::to_string(challenge->part);
  else if (const auto* propose = std::get_if<wire::round_propose>(&what))
    said = "propose " + view(propose->view);
  else if (const auto* prepared = std::get_if<wire::round_prepared>(&what))
    said = "prepared " + std::to_string(prepared->view);
  else if (const auto* suspect = std::get_if<wire::round_suspect>(&what))
    said =
      "suspect " + std::to_string(suspect->member) + " in view " + std::to_string(suspect->view);
  else if (const auto* commit = std::get_if<wire::round_commit>(&what))
    said = "commit " + view(commit->view);
  else if (const auto* takeover = std::get_if<wire::round_takeover>(&what))
    said = "takeover " + std::to_string(takeover->number);
  else if (const auto* promise = std::get_if<wire::round_promise>(&what))
    said = "promise promised " + std::to_string(promise->promised) + " view " + view(promise->view)
           + (promise->knows_view ? "" : " unknown") + (promise->prepared ? " prepared" : "")
           + (promise->committed ? " committed" : "");
  else
    said = "abort";
  *journal_ += std::to_string(seconds_of(net_.now().time_since_epoch())) + " "
               + std::to_string(from) + " to " + std::to_string(to) + ": " + said + "\n";
}

std::string round_swarm::describe() const {
  std::string out =
    "seed " + std::to_string(scene_.seed) + ", " + std::to_string(members_.size()) + " members";
  for (const auto& f : struck_)
    out += "; " + testing::describe(f);
  for (std::size_t i = 0; i < members_.size(); ++i) {
    const auto& m = members_[i];
    auto promise = promise_of(i);
    out += "\n  " + std::to_string(i) + " mode "
           + std::to_string(static_cast<int>(plan().members[i].mode))
           + (net_.alive(i) ? "" : " dead") + (excused_.contains(i) ? " excused" : "") + " view "
           + std::to_string(promise.view.number) + " of "
           + std::to_string(promise.view.contributors) + " promised "
           + std::to_string(promise.promised) + (promise.prepared ? " prepared" : "");
    if (!m.end)
      continue;
    out += " at " + std::to_string(seconds_of(m.ended_at.time_since_epoch())) + " s "
           + std::string{waggle::to_string(m.end->report.outcome)};
    if (m.end->report.outcome == round_outcome::failed)
      out += ": " + waggle::to_string(m.end->report.why);
    for (const auto& f : m.end->report.faults)
      out += ", lost " + short_name(f.peer);
  }
  return out + "\n  last fault at " + std::to_string(seconds_of(last_strike_.time_since_epoch()))
         + " s";
}

} // namespace waggle::testing
