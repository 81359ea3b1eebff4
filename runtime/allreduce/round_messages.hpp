#pragma once

#include <optional>

#include "runtime/averaging/round_protocol.hpp"
#include "runtime/core/ids.hpp"
#include "runtime/core/time.hpp"
#include "runtime/wire/messages.hpp"

namespace waggle {

/// What a member says to others about a round.
struct round_message {
  member_set to; // may contain the sender, who need not be told
  wire::event what;
};

/// The word that an action of the protocol asks for. Nothing: the action is about this member alone
/// (enter_view, commit, fail).
std::optional<round_message> message_of(const round_id& round,
                                        const round_protocol::action& action);

/// Hands the word of member `from` to the protocol. What is no word of its does nothing.
round_protocol::actions hear(round_protocol& protocol, std::size_t from, const wire::event& word,
                             steady_time now);

} // namespace waggle
