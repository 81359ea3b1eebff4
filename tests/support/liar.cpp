#include "tests/support/liar.hpp"

#include "actors/caf_error.hpp"
#include "runtime/averaging/open_group.hpp"
#include "runtime/crypto/digest.hpp"
#include "runtime/progress/progress_ledger.hpp"
#include "runtime/training/training_state.hpp"
#include "tests/support/states.hpp"
#include "tests/support/toy_learner.hpp"

namespace waggle::testing {

namespace {

using namespace std::chrono_literals;

constexpr std::uint32_t chunk_bytes = 1U << 18U;

/// Calls `act` every `pause` of virtual time while it returns true.
void repeat(caf::actor_system& system, milliseconds pause, std::function<bool()> act) {
  system.spawn([pause, act](caf::event_based_actor* self) -> caf::behavior {
    self->delayed_send(self, pause, caf::unit);
    return {[self, pause, act](caf::unit_t) {
      if (act())
        self->delayed_send(self, pause, caf::unit);
      else
        self->quit();
    }};
  });
}

std::unique_ptr<learner> poisoned_learner(std::size_t parameters) {
  return make_toy_learner({.parameters = parameters, .micro_batch = 4, .init_seed = 666});
}

} // namespace

liar::liar(simulation& sim, const std::vector<index>& through) : sim_(sim), who_(0) {
  node_config config{.run_id = sim[through.front()].node.ctx.run_id};
  who_ = sim.start(config, through);
}

void liar::send(index to, wire::event what) {
  caf::anon_send(sim_[who_].node.parts.switchboard,
                 notify_peer{sim_[to].node.ctx.record, std::move(what), {}});
}

// -- claims --------------------------------------------------------------------------------------

void liar::claim(const false_claim& what) {
  const auto& node = sim_[who_].node;
  const auto& ctx = node.ctx;
  auto stamp = static_cast<std::uint64_t>(to_nanoseconds(ctx.wall->now()));
  facts_->sequence = std::max(stamp, facts_->sequence + 1);
  progress_report report{.who = ctx.record,
                         .epoch = what.epoch,
                         .samples = what.samples,
                         .samples_per_second = what.samples_per_second,
                         .time = swarm_time_from(static_cast<std::int64_t>(facts_->sequence)),
                         .parameters = what.parameters};
  report.claim.past = {what.branch, {}, {}, what.work};
  report.claim.group_size = what.group_size;
  report.claim.ready = what.ready;
  record entry{.kind = record_kind::progress,
               .name = "progress",
               .value = encode_progress(report),
               .expiration = ctx.wall->now() + 50s,
               .sequence = facts_->sequence};
  sign_record(ctx.run_id, *ctx.self, entry);
  for (auto i : sim_.living())
    if (i != who_) {
      caf::anon_send(node.parts.switchboard,
                     notify_peer{sim_[i].node.ctx.record, wire::progress_push{entry}, {}});
      sim_.later<peer_answer>(node.parts.switchboard,
                              call_peer{sim_[i].node.ctx.record, wire::dht_store{{entry}}, 1s},
                              [](const peer_answer&) {});
    }
}

void liar::keep_claiming(const false_claim& what, milliseconds pause) {
  claim(what);
  repeat(sim_.system(), pause, [self = *this, facts = facts_, what]() mutable {
    if (facts->stopped || !self.sim_[self.who_].alive)
      return false;
    self.claim(what);
    return true;
  });
}

void liar::claim_samples(std::uint64_t samples, double samples_per_second) {
  auto said = std::make_shared<std::pair<epoch_id, steady_time>>();
  auto teller = [self = *this, facts = facts_, said, samples,
                 samples_per_second](const swarm_progress& seen) {
    auto& sim = self.sim_;
    if (facts->stopped || !sim[self.who_].alive)
      return;
    const swarm_progress::peer* first = nullptr;
    for (const auto& peer : seen.peers)
      if (peer.who.id != self.id() && peer.claim.group_size > 0
          && (first == nullptr || peer.epoch > first->epoch))
        first = &peer;
    auto now = sim.network().now();
    if (first == nullptr || (first->epoch == said->first && now - said->second < 20ms))
      return;
    *said = {first->epoch, now};
    wire::progress_note note{first->epoch, first->claim.past.branch, samples, samples_per_second};
    for (auto i : sim.living())
      if (i != self.who_)
        caf::anon_send(sim[self.who_].node.parts.switchboard,
                       notify_peer{sim[i].node.ctx.record, note, {}});
  };
  progress_listener_actor listener = sim_.system().spawn(
    [teller](progress_listener_actor::pointer) -> progress_listener_actor::behavior_type {
      return {teller};
    });
  caf::anon_send(sim_[who_].node.parts.tracker, subscribe_progress{listener});
}

// -- services ------------------------------------------------------------------------------------

void liar::serve_all() {
  if (std::exchange(facts_->serving, true))
    return;
  service_actor service = sim_.system().spawn(
    [self = std::make_shared<liar>(*this)](service_actor::pointer) -> service_actor::behavior_type {
      return {
        [self](const inbound_call& call) -> caf::result<outbound_answer> {
          if (std::holds_alternative<wire::enter_group>(call.what))
            return self->admit(call);
          if (self->facts_->image.empty())
            return to_caf(ec::not_ready, "nothing to give");
          return self->offer(call);
        },
        [](const inbound_event& event) { event.release(); },
      };
    });
  const auto& board = sim_[who_].node.parts.switchboard;
  for (auto topic : {service_topic::averaging, service_topic::matchmaking, service_topic::state})
    caf::anon_send(board, serve{topic, service});
}

outbound_answer liar::admit(const inbound_call& call) {
  const auto& question = std::get<wire::enter_group>(call.what);
  if (!facts_->admits)
    return {wire::join_reply{ec::not_ready, {}}, {}};
  if (facts_->admits_at) {
    open_group::terms terms{
      .prefix = question.prefix, .schema = question.schema, .vectors = {{{64, codec_id::none}}}};
    terms.partition.parts.largest = 16;
    open_group group{{sim_[who_].node.ctx.record, member_mode::node}, terms, {}};
    auto seed = sha256(std::to_string(++facts_->opened));
    round_id id;
    std::copy_n(seed.bytes.begin(), round_id::size, id.bytes.begin());
    group.found(*facts_->admits_at, question.branch, id);
    auto replaced = group.next().id;
    (void)group.apply({{call.from, question.mode}, question.schema, question.branch, {}});
    if (auto plan = group.admit())
      caf::anon_send(sim_[who_].node.parts.switchboard,
                     notify_peer{call.from,
                                 wire::next_plan{replaced, *plan, question.branch, question.schema,
                                                 round_members_max},
                                 {}});
  }
  return {wire::join_reply{ec::none, {}}, {}};
}

outbound_answer liar::offer(const inbound_call& call) const {
  if (std::holds_alternative<wire::open_state>(call.what)) {
    ++facts_->opened;
    return {wire::state_header{facts_->epoch, facts_->content, poisoned_parameters(),
                               facts_->image.size(), chunk_bytes},
            {}};
  }
  ++facts_->chunks;
  const auto& chunk = std::get<wire::get_state_chunk>(call.what);
  auto begin = std::min<std::size_t>(std::size_t{chunk.index} * chunk_bytes, facts_->image.size());
  auto size = std::min<std::size_t>(chunk_bytes, facts_->image.size() - begin);
  return {wire::state_chunk{chunk.index},
          copy_to_payload(byte_span{facts_->image}.subspan(begin, size))};
}

void liar::admit_at(epoch_id epoch) {
  facts_->admits = true;
  facts_->admits_at = epoch;
  serve_all();
}

void liar::admit_never() {
  facts_->admits = true;
  facts_->admits_at.reset();
  serve_all();
}

void liar::give(epoch_id epoch, std::vector<std::byte> image) {
  facts_->epoch = epoch;
  facts_->image = std::move(image);
  facts_->content = sha256(byte_span{facts_->image});
  serve_all();
}

// -- states --------------------------------------------------------------------------------------

std::vector<std::byte> poisoned_image(const history& past, epoch_id epoch, std::size_t parameters) {
  auto model = poisoned_learner(parameters);
  auto learner = save_state(*model);
  auto image =
    encode_state({epoch, model->schema(), model->parameters_digest(), past, byte_span{learner}});
  return {image.view().begin(), image.view().end()};
}

digest poisoned_parameters(std::size_t parameters) {
  return poisoned_learner(parameters)->parameters_digest();
}

} // namespace waggle::testing
