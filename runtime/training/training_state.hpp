#pragma once

#include <string>
#include <vector>

#include "runtime/core/byte_store.hpp"
#include "runtime/core/bytes.hpp"
#include "runtime/core/history.hpp"
#include "runtime/core/result.hpp"

namespace waggle {

/// What a peer needs to continue from the position of another peer, or from its own position before
/// a restart: the image that donors send and checkpoints store. The layout, little-endian:
///
///     magic "WGGLST03" (8) | epoch (8) | schema (32) | parameters (32)
///     | branch (32) | parent (32) | forked at (8) | work (8) | steps (8) | learner bytes (8)
///     | SHA-256 over the fields above and the learner's state (32) | the learner's state
struct training_state {
  epoch_id epoch;
  digest schema;     // learner::schema()
  digest parameters; // learner::parameters_digest()
  history past;      // of the epoch
  byte_span learner; // what learner::save_state_to writes
};

/// The number of bytes in front of the learner's state.
constexpr std::size_t state_header_bytes = 8 + 8 + 32 + 32 + 32 + 32 + 8 + 8 + 8 + 8 + 32;

/// Writes the header of `state` into the first state_header_bytes of `image`, whose remaining bytes
/// are the learner's state; `state.learner` is ignored. Hashes the whole image. Fails with
/// ec::io_error.
status seal_state_in(const training_state& state, byte_store& image);

/// Checks lengths, magic and hash before any field is used; the result points into `image`. Fails
/// with ec::malformed or hash_mismatch.
result<training_state> decode_state(byte_span image);
/// The same without the learner's state, which follows the header. Reads the whole image once.
/// Fails with ec::io_error, too.
result<training_state> check_state(const byte_source& image);

} // namespace waggle
