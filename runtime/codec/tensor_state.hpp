#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "runtime/codec/averaged_tensors.hpp"
#include "runtime/core/bytes.hpp"

namespace waggle {

/// What an averager gives to a peer that loads its state: tensors, and bytes of the application's
/// own.
struct averager_state {
  std::string metadata; // at most 64 KiB
  std::vector<averaged_tensor> tensors;
  std::shared_ptr<const void> memory{}; // of the tensors' values; null: somebody else's
};

/// Its bytes. Fails with ec::oversize, bad_config or wrong_shape, and names what.
result<payload> encode_state(const averager_state& state);
/// The inverse, of bytes that may be anybody's: fails with ec::malformed. The tensors' values stay
/// where they are in `bytes`.
result<averager_state> decode_state(std::shared_ptr<std::vector<std::byte>> bytes);

} // namespace waggle
