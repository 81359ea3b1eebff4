#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/core/byte_store.hpp"
#include "runtime/core/endpoint.hpp"
#include "runtime/core/ids.hpp"
#include "runtime/core/result.hpp"
#include "runtime/core/time.hpp"
#include "runtime/crypto/identity.hpp"
#include "runtime/training/own_progress.hpp"

namespace waggle {

// What a peer that leaves has alone (the residual of its codecs, its place in the data), which
// another one keeps for it. The ledger of shards is in the state of all. Layout:
//
//     public key (32) | signature (64) of the next 72 bytes | own_progress, as in a file
//
// The state that the latter names is the run and the history to which it belongs. It is signed, so
// that whoever keeps it cannot change it; anybody in the run may have it, because it is no secret
// there.

/// The most bytes of it, where a residual has so many values.
constexpr std::uint64_t left_bytes_max(std::uint64_t values) {
  return 1_MiB + sizeof(float) * values;
}

/// Writes it to `into`. Returns the SHA-256 of all. REQUIRES: no `partial` and no `pending`.
result<digest> seal_left(const own_progress& what, const identity& by, std::string_view run,
                         const digest& branch, byte_store& into);

/// Fails with ec::malformed, bad_signature if `owner` has not sealed it, or wrong_run if it belongs
/// to another run or history. A residual has `values` finite values, or there is none.
result<own_progress> open_left(std::string_view bytes, const peer_id& owner, std::string_view run,
                               const digest& branch, std::uint64_t values,
                               const signature_verifier& verifier);

/// For the log: "the errors of its codecs (1024 values, norm 0.2) and its place in the data".
std::string text_of(const own_progress& left);

/// Those of a peer's group that it asks to keep it, in order, and that are asked for it later: the
/// nearest by their ids, of which few change meanwhile, and those that dial nobody last.
std::vector<peer_record> neighbours_of(const peer_id& owner, std::vector<peer_record> members);

/// What others have left with this peer. Nobody can take it away from its owner, which gets it
/// until it contributes to a round again. One other peer gets it: its rounds send the residual from
/// then on. Not thread-safe.
class left_progress {
public:
  /// Each may have as many bytes as the parameters. Of more peers that leave at once, the others
  /// ask another neighbour.
  static constexpr std::size_t kept_max = 4;
  /// A machine is given back within minutes. Later, the parameters have moved on.
  static constexpr milliseconds kept_for{3'600'000};

  struct entry {
    digest branch;
    epoch_id epoch; // of the first round without the owner
    digest content; // SHA-256 of the bytes
    std::shared_ptr<const byte_source> bytes;
  };

  /// Makes room for what `owner` is about to leave. What it had left before is dropped. Fails with
  /// ec::overloaded.
  status expect(const peer_id& owner, steady_time now);
  /// REQUIRES: it was expected.
  void keep(const peer_id& owner, entry what, steady_time now);
  void drop(const peer_id& owner) { all_.erase(owner); }
  void drop_old(steady_time now);
  /// These peers, to the round of this epoch: what they had left is outdated.
  void contributed(const std::vector<peer_id>& peers, epoch_id epoch);
  [[nodiscard]] bool has(const peer_id& owner) const { return all_.contains(owner); }
  /// Fails with ec::not_found, or wrong_run if it belongs to another history.
  result<entry> give(const peer_id& owner, const digest& branch, const peer_id& to,
                     steady_time now);

private:
  struct kept {
    entry what{}; // null bytes: they are on their way
    steady_time since{};
    bool given = false; // to another peer than the owner
  };
  std::map<peer_id, kept> all_;
};

} // namespace waggle
