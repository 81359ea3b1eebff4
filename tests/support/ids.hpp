#pragma once

#include "runtime/core/ids.hpp"

namespace waggle {

/// One that begins with this byte.
inline peer_id id_of(std::size_t first) {
  peer_id id;
  id.bytes[0] = static_cast<std::byte>(first);
  return id;
}

} // namespace waggle
