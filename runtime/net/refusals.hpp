#pragma once

#include <string_view>

#include "runtime/core/error.hpp"

namespace waggle::net {

/// The reason that both processes get if they use one identity at the same time.
constexpr std::string_view identity_in_use =
  "another process uses this identity: give each its own --data-dir";

/// Whether a link with a peer of the same run was refused because of the options or the identity
/// that one of the two was started with. (A peer that dials itself also fails with
/// ec::duplicate_identity; that need not be reported.)
inline bool started_wrongly(const failure& why) {
  return why.code == ec::agreement_mismatch
         || (why.code == ec::duplicate_identity && why.detail.ends_with(identity_in_use));
}

} // namespace waggle::net
