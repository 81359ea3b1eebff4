#pragma once

// One member's round_protocol, and what it wants done. Shared by its tests.

#include <stdexcept>

#include "runtime/averaging/round_protocol.hpp"
#include "runtime/crypto/digest.hpp"
#include "tests/runtime/averaging/plans.hpp"

namespace waggle {

using protocol = round_protocol;
constexpr steady_time t0{};

template <class Action>
const Action* find(const protocol::actions& actions) {
  for (const auto& a : actions)
    if (const auto* found = std::get_if<Action>(&a))
      return found;
  return nullptr;
}

/// Throws if there is none.
template <class Action>
const Action& the(const protocol::actions& actions) {
  const auto* found = find<Action>(actions);
  if (found == nullptr)
    throw std::logic_error{"no such action"};
  return *found;
}

inline protocol member(std::size_t self, std::size_t members = 4) {
  return {plan_for(members), self, {1, milliseconds{2'000}}};
}

inline const digest right = sha256("the result that all hold");
inline const digest wrong = sha256("another");

/// The view as a member reports it that has prepared it.
inline round_view holding(round_view view, const digest& result = right) {
  view.result = result;
  return view;
}

/// The first view of a term.
constexpr std::uint32_t term(std::uint32_t t) {
  return t * views_per_term;
}

} // namespace waggle
