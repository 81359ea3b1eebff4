#pragma once

#include <optional>

#include "runtime/averaging/round_protocol.hpp"
#include "runtime/core/ids.hpp"
#include "runtime/core/time.hpp"
#include "runtime/wire/messages.hpp"

namespace waggle {

/// A message from one member to others about a round.
struct round_message {
  member_set to; // may contain the sender, which receives no message
  wire::event what;
};

/// The message for an action of the protocol, without signatures. Nothing: the action concerns this
/// member alone (enter_view, commit, fail).
std::optional<round_message> message_of(const round_id& round,
                                        const round_protocol::action& action);

/// Passes the message of member `from` to the protocol, once its signatures are checked. Ignores
/// events that are not round messages.
round_protocol::actions receive(round_protocol& protocol, std::size_t from,
                                const wire::event& message, steady_time now);

/// What a member whose round ended with `promise` answers to a message about that round. Nothing:
/// the sender does not wait for an answer.
std::optional<wire::event> late_answer(const wire::event& message,
                                       const wire::round_promise& promise);

/// Tells the other members of `plan` that `self` does not take part in its round, so that they do
/// not wait for it. Nothing if `self` is not a member.
std::optional<wire::round_suspect> refusal_of(const round_plan& plan, const peer_id& self, ec why);

} // namespace waggle
