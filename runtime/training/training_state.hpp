#pragma once

#include <string>

#include "runtime/core/bytes.hpp"
#include "runtime/core/ids.hpp"
#include "runtime/core/result.hpp"

namespace waggle {

/// What a peer needs to go on where another one is, or where it was itself before a restart: the
/// image that donors send and checkpoints hold. The layout, little-endian:
///
///     magic "WGGLST01" (8) | epoch (8) | schema (32) | parameters (32) | learner bytes (8)
///     | SHA-256 over all of the former and the learner's state (32) | the learner's state
struct training_state {
  epoch_id epoch;
  digest schema;     // learner::schema()
  digest parameters; // learner::parameters_digest()
  byte_span learner; // learner::save_state()
};

/// Everything in front of the learner's state.
std::string encode_state_header(const training_state& state);
payload encode_state(const training_state& state);

/// Checks lengths, magic and hash before anything is believed; the result points into `image`.
/// Fails with ec::malformed or hash_mismatch.
result<training_state> decode_state(byte_span image);

} // namespace waggle
