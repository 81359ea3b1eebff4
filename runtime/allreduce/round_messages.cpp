#include "runtime/allreduce/round_messages.hpp"

namespace waggle {

namespace {

using protocol = round_protocol;

member_set only(std::size_t member) {
  member_set set;
  set.insert(member);
  return set;
}

struct sender {
  round_id round;

  using word = std::optional<round_message>;

  word operator()(const protocol::send_propose& a) const {
    return {{a.to, wire::round_propose{round, a.view, a.promises}}};
  }
  word operator()(const protocol::send_prepared& a) const {
    return {{a.to, wire::round_prepared{round, a.view.number, a.view.result, {}}}};
  }
  word operator()(const protocol::send_suspect& a) const {
    return {{only(a.to),
             wire::round_suspect{round, a.view, static_cast<std::uint32_t>(a.member), a.reason}}};
  }
  word operator()(const protocol::send_commit& a) const {
    return {{a.to, wire::round_commit{round, a.view, {}}}};
  }
  word operator()(const protocol::send_abort& a) const {
    return {{a.to, wire::round_abort{round, a.reason}}};
  }
  word operator()(const protocol::send_takeover& a) const {
    return {{a.to, wire::round_takeover{round, a.number}}};
  }
  word operator()(const protocol::send_promise& a) const {
    return {{only(a.to), wire::round_promise{a.promise, round, {}}}};
  }
  template <class NoMessage>
  word operator()(const NoMessage&) const {
    return {};
  }
};

struct listener {
  protocol& receiver;
  std::size_t from;
  steady_time now;

  protocol::actions operator()(const wire::round_propose& message) const {
    return receiver.on_propose(from, message.view, message.promises);
  }
  protocol::actions operator()(const wire::round_prepared& message) const {
    return receiver.on_prepared(from, message.view, message.result);
  }
  protocol::actions operator()(const wire::round_suspect& message) const {
    return receiver.on_suspect(from, message.view, message.member, message.reason, now);
  }
  protocol::actions operator()(const wire::round_commit& message) const {
    return receiver.on_commit(from, message.view);
  }
  protocol::actions operator()(const wire::round_abort& message) const {
    return receiver.on_abort(from, message.reason);
  }
  protocol::actions operator()(const wire::round_takeover& message) const {
    return receiver.on_takeover(from, message.number);
  }
  protocol::actions operator()(const wire::round_promise& message) const {
    return receiver.on_promise(from, message);
  }
  template <class NoWord>
  protocol::actions operator()(const NoWord&) const {
    return {};
  }
};

} // namespace

std::optional<round_message> message_of(const round_id& round, const protocol::action& action) {
  return std::visit(sender{round}, action);
}

protocol::actions receive(round_protocol& protocol, std::size_t from, const wire::event& message,
                          steady_time now) {
  return std::visit(listener{protocol, from, now}, message);
}

std::optional<wire::event> late_answer(const wire::event& message,
                                       const wire::round_promise& promise) {
  if (const auto* takeover = std::get_if<wire::round_takeover>(&message)) {
    auto answer = promise;
    if (promise.committed)
      answer.promised = takeover->number;
    else
      answer.knows_view = false; // the round failed here: we neither hold nor promise anything
    return answer;
  }
  // A member that still works on a round that is committed here has missed a message.
  const auto* suspect = std::get_if<wire::round_suspect>(&message);
  bool asks = std::holds_alternative<wire::round_propose>(message)
              || std::holds_alternative<wire::round_digests>(message)
              || std::holds_alternative<wire::round_key_share>(message)
              || std::holds_alternative<wire::round_pledge>(message)
              // who declined it missed nothing
              || (suspect != nullptr && suspect->reason != ec::not_looking);
  if (!asks || !promise.committed)
    return std::nullopt;
  return wire::round_commit{promise.round, promise.view, promise.proof};
}

std::optional<wire::round_suspect> refusal_of(const round_plan& plan, const peer_id& self, ec why) {
  auto mine = position_of(self, plan);
  if (mine == plan.members.size())
    return std::nullopt;
  return wire::round_suspect{plan.id, 0, static_cast<std::uint32_t>(mine), why};
}

} // namespace waggle
