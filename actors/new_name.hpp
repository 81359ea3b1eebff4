#pragma once

#include <algorithm>
#include <cstdint>

#include "actors/node_context.hpp"
#include "runtime/core/byte_io.hpp"
#include "runtime/crypto/digest.hpp"

namespace waggle {

/// A name for something new, such as a round or a history (round_id, digest). Peers that are
/// started with the same --seed draw the same numbers, and a process that is started again draws
/// those of the one before it: their names differ still, because peer and time are part of them.
template <class Id>
[[nodiscard]] Id new_name(const node_context& ctx, random_source& random) {
  digest drawn;
  random.fill(drawn.bytes);
  byte_writer time;
  time.put(static_cast<std::uint64_t>(to_nanoseconds(ctx.wall->now())));
  auto hash = sha256_stream{}
                .add("waggle name")
                .add(ctx.record.id.view())
                .add(time.text())
                .add(drawn.view())
                .finish();
  Id id;
  std::copy_n(hash.bytes.begin(), id.bytes.size(), id.bytes.begin());
  return id;
}

} // namespace waggle
