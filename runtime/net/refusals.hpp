#pragma once

#include <string_view>

#include "runtime/core/error.hpp"

namespace waggle::net {

/// What both processes are told that use one identity at the same time.
constexpr std::string_view identity_in_use =
  "another process uses this identity: give each its own --data-dir";

/// Whether a peer of the right run and we do not link because of how one of us was started. (A peer
/// that dials itself has the code of a shared identity, too; nobody has to hear of that.)
inline bool started_wrongly(const failure& why) {
  return why.code == ec::agreement_mismatch
         || (why.code == ec::duplicate_identity && why.detail.ends_with(identity_in_use));
}

} // namespace waggle::net
