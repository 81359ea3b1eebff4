// averager ─► allreduce_round ── our contributions ──► owners of the parts (ourselves included)
//   peers' contributions ─► allreduce_part ─► part_reduced ── result ──► all participants
//   peers' results ─► result vector ─ complete? ─► round_protocol ─► prepared … commit ─► report
//   links lost, members stalled, nonsense ─► round_protocol ─► a new view ─► ship, reduce, collect

#include "actors/allreduce_round.hpp"

#include <algorithm>
#include <cstring>

#include "actors/guard.hpp"

namespace waggle {

namespace {

using self_pointer = allreduce_round_impl::stateful_pointer<allreduce_round_state>;
using verdict = round_books::verdict;

struct conductor {
  self_pointer self;
  const node_context& ctx;
  const round_config& config;
  const round_order& order;
  const switchboard_actor& switchboard;
  const round_listener_actor& listener;

  allreduce_round_state& state() const { return self->state; }
  steady_time now() const { return self->clock().now(); }
  const round_plan& plan() const { return order.plan; }

  // -- sending ----------------------------------------------------------------------------------

  void tell(std::size_t member, wire::event what, payload body = {}) const {
    state().bytes_sent += body.size;
    self->send(switchboard,
               tell_peer{plan().members[member].peer, std::move(what), std::move(body)});
  }

  void tell_all(member_set members, const wire::event& what) const {
    members.for_each([&](std::size_t member) {
      if (member != order.self_index)
        tell(member, what);
    });
  }

  wire::part header(std::uint32_t index, wire::part_kind kind) const {
    const auto& part = state().books->parts()[index];
    wire::part head;
    head.round = plan().id;
    head.view = state().books->view().number;
    head.kind = kind;
    head.index = index;
    head.offset = part.offset;
    head.count = part.count;
    return head;
  }

  /// Our values of one part, encoded.
  payload contribution(std::uint32_t index) const {
    const auto& part = state().books->parts()[index];
    if (part.codec == codec_id::none)
      return slice(payload_of(order.values), part.offset * sizeof(float),
                   part.count * sizeof(float));
    auto bytes = std::make_shared<std::vector<std::byte>>(encoded_size(part.codec, part.count));
    encode(part.codec, std::span{*order.values}.subspan(part.offset, part.count), *bytes);
    return payload_of(std::shared_ptr<const std::vector<std::byte>>{bytes});
  }

  allreduce_part_actor& part_actor(std::uint32_t index) const {
    auto& st = state();
    auto found = st.parts.find(index);
    if (found == st.parts.end()) {
      const auto& part = st.books->parts()[index];
      part_assignment assignment{
        index, part.count, part.codec,
        std::shared_ptr<float>{st.result, st.result->data() + part.offset}};
      found = st.parts
                .emplace(index, self->spawn(allreduce_part, ctx, assignment,
                                            caf::actor_cast<part_listener_actor>(self)))
                .first;
    }
    return found->second;
  }

  /// Ships, reduces and collects for the current view.
  void work() const {
    auto& st = state();
    const auto& view = st.books->view();
    for (auto index : st.books->owned())
      self->send(part_actor(index), reduce_over{view.contributors});
    for (const auto& shipment : st.books->take_shipments()) {
      auto bytes = contribution(shipment.part);
      if (shipment.owner == order.self_index) {
        st.books->contribution(shipment.part, order.self_index, view.number, now());
        self->send(part_actor(shipment.part),
                   add_contribution{order.self_index, order.weight, std::move(bytes)});
        continue;
      }
      auto head = header(shipment.part, wire::part_kind::contribution);
      head.weight = order.weight;
      tell(shipment.owner, head, std::move(bytes));
    }
  }

  // -- parts that come in ------------------------------------------------------------------------

  void refuse(std::size_t member, ec reason) const {
    ctx.metrics->count_refused_input(reason);
    suspect(member, reason);
  }

  void suspect(std::size_t member, ec reason) const {
    if (!state().first_fault)
      state().first_fault = now();
    perform(state().protocol->on_suspicion(member, reason, now()));
  }

  void on_part(std::size_t from, const inbound_event& msg, const wire::part& head) const {
    auto& st = state();
    const auto& parts = st.books->parts();
    if (head.index >= parts.size() || head.offset != parts[head.index].offset
        || head.count != parts[head.index].count
        || msg.body.size != encoded_size(parts[head.index].codec, parts[head.index].count)) {
      msg.release();
      return refuse(from, ec::wrong_shape);
    }
    auto said = head.kind == wire::part_kind::contribution
                  ? st.books->contribution(head.index, from, head.view, now())
                  : st.books->result(head.index, from, head.contributors, head.view, now());
    if (said == verdict::later) {
      // Bounded: bodies that are not released hold the sender's window.
      st.parked.push_back(msg);
      return;
    }
    if (said == verdict::accept)
      accept(from, msg, head);
    msg.release();
    if (said == verdict::refuse)
      refuse(from, ec::protocol_violation);
  }

  void accept(std::size_t from, const inbound_event& msg, const wire::part& head) const {
    auto& st = state();
    st.bytes_received += msg.body.size;
    ctx.metrics->count_part("ok");
    if (head.kind == wire::part_kind::contribution) {
      self->send(part_actor(head.index), add_contribution{from, head.weight, msg.body});
      return;
    }
    std::span<float> out{st.result->data() + head.offset, head.count};
    auto decoded = decode(st.books->parts()[head.index].codec, msg.body.view(), out);
    if (!decoded || !all_finite(out)) {
      st.books->forget_result(head.index);
      return refuse(from, ec::non_finite);
    }
    agree_on_weight(head.weight);
    collect();
  }

  /// All parts must be sums over the same weights. If they are not, somebody told different weights
  /// to different reducers, and there is no result.
  void agree_on_weight(double weight_sum) const {
    auto& st = state();
    if (!st.weight_sum)
      st.weight_sum = weight_sum;
    else if (*st.weight_sum != weight_sum)
      perform(st.protocol->give_up({ec::bad_weight, "parts were summed over different weights"}));
  }

  void on_reduced(const part_reduced& msg) const {
    auto& st = state();
    const auto& view = st.books->view();
    if (msg.contributors != view.contributors)
      return; // of a view that is over
    auto said = st.books->result(msg.index, order.self_index, msg.contributors, view.number, now());
    if (said != verdict::accept)
      return;
    const auto& part = st.books->parts()[msg.index];
    auto* home = st.result->data() + part.offset;
    if (part.codec != codec_id::none) {
      auto decoded = decode(part.codec, msg.values.view(), std::span{home, part.count});
      WAGGLE_CHECK(decoded.ok(), "our own encoding does not decode");
    } else if (static_cast<const void*>(msg.values.data.get()) != home) {
      st.late_parts.insert_or_assign(msg.index, msg.values);
    }
    auto head = header(msg.index, wire::part_kind::result);
    head.weight = msg.weight_sum;
    head.contributors = msg.contributors;
    view.participant_set().for_each([&](std::size_t member) {
      if (member != order.self_index)
        tell(member, head, msg.values);
    });
    agree_on_weight(msg.weight_sum);
    collect();
  }

  void on_refused(const part_refused& msg) const {
    member_set{msg.members}.for_each([&](std::size_t member) {
      if (member == order.self_index) // checked before the round began
        perform(state().protocol->give_up({msg.reason, "our own contribution was refused"}));
      else
        refuse(member, msg.reason);
    });
  }

  void collect() const {
    auto& st = state();
    if (!st.books->complete() || st.protocol->ended())
      return;
    st.completed = now();
    perform(st.protocol->on_result_complete(st.books->view().number));
  }

  // -- the protocol ------------------------------------------------------------------------------

  void on_event(const inbound_event& msg) const {
    auto member = state().members.find(msg.from.id);
    if (member == state().members.end() || state().reported) {
      if (!state().reported)
        ctx.metrics->count_refused_input(ec::protocol_violation);
      msg.release();
      return;
    }
    auto from = member->second;
    auto& protocol = *state().protocol;
    if (const auto* part = std::get_if<wire::part>(&msg.what))
      on_part(from, msg, *part);
    else if (const auto* propose = std::get_if<wire::round_propose>(&msg.what))
      perform(protocol.on_propose(from, propose->view));
    else if (const auto* prepared = std::get_if<wire::round_prepared>(&msg.what))
      perform(protocol.on_prepared(from, prepared->view));
    else if (const auto* suspicion = std::get_if<wire::round_suspect>(&msg.what))
      on_suspect(from, *suspicion);
    else if (const auto* decided = std::get_if<wire::round_commit>(&msg.what))
      perform(protocol.on_commit(from, decided->view));
    else if (const auto* abort = std::get_if<wire::round_abort>(&msg.what))
      perform(protocol.on_abort(from, abort->reason));
    else if (const auto* takeover = std::get_if<wire::round_takeover>(&msg.what))
      perform(protocol.on_takeover(from, takeover->number));
    else if (const auto* standing = std::get_if<wire::round_standing>(&msg.what))
      perform(protocol.on_standing(from, {standing->promised, standing->knows_view, standing->view,
                                          standing->prepared, standing->committed}));
  }

  void on_suspect(std::size_t from, const wire::round_suspect& msg) const {
    if (!state().first_fault)
      state().first_fault = now();
    perform(state().protocol->on_suspect(from, msg.view, msg.member, msg.reason, now()));
  }

  void perform(const round_protocol::actions& actions) const {
    for (const auto& action : actions)
      std::visit([this](const auto& a) { (*this)(a); }, action);
  }

  void operator()(const round_protocol::send_propose& a) const {
    tell_all(a.to, wire::round_propose{plan().id, a.view});
  }
  void operator()(const round_protocol::send_prepared& a) const {
    tell(a.to, wire::round_prepared{plan().id, a.view});
  }
  void operator()(const round_protocol::send_suspect& a) const {
    if (a.to != order.self_index)
      tell(a.to,
           wire::round_suspect{plan().id, a.view, static_cast<std::uint32_t>(a.member), a.reason});
  }
  void operator()(const round_protocol::send_commit& a) const {
    tell_all(a.to, wire::round_commit{plan().id, a.view});
  }
  void operator()(const round_protocol::send_abort& a) const {
    tell_all(a.to, wire::round_abort{plan().id, a.reason});
  }
  void operator()(const round_protocol::send_takeover& a) const {
    tell_all(a.to, wire::round_takeover{plan().id, a.number});
  }
  void operator()(const round_protocol::send_standing& a) const {
    const auto& s = a.standing;
    tell(a.to, wire::round_standing{plan().id, s.promised, s.knows_view, s.view, s.prepared,
                                    s.committed});
  }
  void operator()(const round_protocol::enter_view& a) const {
    auto& st = state();
    if (a.view.contributors != st.books->view().contributors) {
      st.weight_sum.reset();
      st.late_parts.clear();
    }
    ctx.log->info("round {} goes on as view {} with {} contributors", short_name(plan().id),
                  a.view.number, a.view.contributor_set().size());
    st.books->enter(a.view, now());
    st.completed = now();
    work();
    auto parked = std::exchange(st.parked, {});
    for (const auto& msg : parked)
      on_event(msg);
    collect();
  }
  void operator()(const round_protocol::commit& a) const {
    auto& st = state();
    round_report report;
    auto everybody = first_view(plan());
    report.outcome = a.view.contributors == everybody.contributors ? round_outcome::complete
                                                                   : round_outcome::shrunk;
    a.view.contributor_set().for_each(
      [&](std::size_t member) { report.contributors.push_back(plan().members[member].peer.id); });
    report.weight_sum = st.weight_sum.value_or(0);
    if (report.weight_sum == 0)
      report.values = order.values; // INV-4: nobody had anything to say
    else
      report.values = finished_result();
    if (report.outcome == round_outcome::shrunk && !st.protocol->lost().empty())
      report.why = {st.protocol->lost().begin()->second, "members were lost"};
    finish(std::move(report));
  }
  void operator()(const round_protocol::fail& a) const {
    round_report report;
    report.outcome = round_outcome::failed;
    report.why = a.why;
    finish(std::move(report));
  }

  /// Parts that were reduced again are put in place. The vector that earlier results of ours may
  /// still be sent from stays as it is.
  std::shared_ptr<const float_vector> finished_result() const {
    auto& st = state();
    if (st.late_parts.empty())
      return st.result;
    auto whole = std::make_shared<float_vector>(*st.result);
    for (const auto& [index, bytes] : st.late_parts)
      std::memcpy(whole->data() + st.books->parts()[index].offset, bytes.data.get(), bytes.size);
    return whole;
  }

  void finish(round_report report) const {
    auto& st = state();
    if (std::exchange(st.reported, true))
      return;
    report.round = plan().id;
    report.group_size = static_cast<std::uint32_t>(plan().members.size());
    report.allreduce_seconds = seconds_of(now() - st.began);
    if (st.first_fault)
      report.recovery_seconds = seconds_of(now() - *st.first_fault);
    report.bytes_sent = st.bytes_sent;
    report.bytes_received = st.bytes_received;
    for (const auto& [member, reason] : st.protocol->lost()) {
      report.faults.push_back({plan().members[member].peer.id, reason});
      ctx.metrics->count_peer_fault(reason);
    }
    for (const auto& msg : st.parked)
      msg.release();
    st.parked.clear();
    auto s = st.protocol->standing();
    round_finished event;
    event.standing = {plan().id, s.promised, s.knows_view, s.view, s.prepared, s.committed};
    event.all_took_part = report.outcome == round_outcome::complete && st.protocol->lost().empty()
                          && st.books->view().participant_set().size() == plan().members.size();
    event.report = std::move(report);
    self->send(listener, std::move(event));
    self->quit();
  }

  // -- time --------------------------------------------------------------------------------------

  void check() const {
    auto& st = state();
    if (st.reported)
      return;
    if (now() - st.began >= config.deadline)
      return perform(st.protocol->give_up({ec::timeout, "the round did not end by its deadline"}));
    perform(st.protocol->on_time(now()));
    if (st.reported)
      return;
    if (!st.books->complete()) {
      for (auto member : st.books->stalled(now(), config.stall_timeout))
        if (!st.reported)
          suspect(member, ec::stalled);
      return;
    }
    // Others may wait for results up to twice the stall timeout before they are done, or complain.
    // The leader loses patience first: it may be waiting for a frozen member itself, and must not
    // be taken for the one that is frozen.
    auto patience = st.protocol->coordinator() == order.self_index ? 3 : 5;
    if (now() - st.completed >= patience * config.stall_timeout)
      st.protocol->awaited().for_each([&](std::size_t member) {
        if (!st.reported && member != order.self_index)
          suspect(member, ec::stalled);
      });
  }
};

} // namespace

allreduce_round_impl::behavior_type allreduce_round(self_pointer self, node_context ctx,
                                                    round_config config, round_order order,
                                                    std::shared_ptr<vector_pool> pool,
                                                    switchboard_actor switchboard,
                                                    round_listener_actor listener) {
  end_on_exception(self, ctx);
  self->monitor(listener); // nobody would hear how it ends
  self->set_down_handler([self](const caf::down_msg&) { self->quit(); });
  auto& st = self->state;
  st.began = st.completed = self->clock().now();
  st.protocol.emplace(
    order.plan, order.self_index,
    round_protocol::options{order.plan.min_contributors, config.takeover_timeout});
  st.books.emplace(order.plan, order.self_index, st.began);
  st.result = pool->take(order.plan.elements);
  for (std::size_t i = 0; i < order.plan.members.size(); ++i)
    st.members.emplace(order.plan.members[i].peer.id, i);
  auto tick = std::clamp(config.stall_timeout / 8, milliseconds{20}, milliseconds{500});
  auto with = [self, ctx, config, order, switchboard, listener](auto&& action) {
    action(conductor{self, ctx, config, order, switchboard, listener});
  };
  with([](const conductor& c) {
    c.work();
    c.collect(); // a vector without parts of ours to wait for
  });
  self->delayed_send(self, tick, check_round{});
  return {
    [with](const inbound_event& msg) { with([&](const conductor& c) { c.on_event(msg); }); },
    [with](const part_reduced& msg) { with([&](const conductor& c) { c.on_reduced(msg); }); },
    [with](const part_refused& msg) { with([&](const conductor& c) { c.on_refused(msg); }); },
    [with, self](const cancel_round& msg) {
      with([&](const conductor& c) { c.perform(self->state.protocol->give_up(msg.why)); });
    },
    [](const peer_connected&) { /* who reconnects has lost frames: the round goes on without */ },
    [with, self](const peer_disconnected& msg) {
      auto member = self->state.members.find(msg.peer);
      if (member == self->state.members.end() || self->state.reported)
        return;
      auto reason = msg.why.code == ec::none ? ec::peer_lost : msg.why.code;
      with([&](const conductor& c) { c.suspect(member->second, reason); });
    },
    [with, self, tick](check_round again) {
      with([](const conductor& c) { c.check(); });
      self->delayed_send(self, tick, again);
    },
  };
}

} // namespace waggle
