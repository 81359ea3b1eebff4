#include "runtime/training/forked_branch.hpp"

#include "runtime/crypto/digest.hpp"

namespace waggle {

digest forked_branch(const digest& parent, const round_id& round) {
  return sha256_stream{}.add("waggle fork").add(parent.view()).add(round.view()).finish();
}

} // namespace waggle
