#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <set>
#include <vector>

#include "runtime/core/ids.hpp"
#include "runtime/progress/evidence.hpp"
#include "runtime/progress/progress_ledger.hpp"

namespace waggle {

/// The peers of one history, which average their parameters in many small groups: who they are,
/// which epoch the run has reached, and which of them calls the others to a round. All of it
/// follows from what peers claim of themselves. Not thread-safe.
///
/// An epoch of the run ends for each peer with its own round, so peers are at different epochs for
/// a while. The run's epoch is the highest one that two other peers have reached (a round has at
/// least two members, and one peer alone may claim anything); of a single other peer, its own.
/// Claims of clients do not count, as in the progress ledger, nor those of peers that are still
/// downloading a state. Peers that are connected take precedence: if there are any, the others do
/// not count, because records outlive their peers. If this peer has completed rounds with two of
/// them, the epochs of the others do not count: identities are made up easily.
class run_group {
public:
  /// `tolerance`: a state that is so many epochs behind the run is still in step. `listed`: as in
  /// evidence.
  run_group(const peer_id& self, std::uint64_t tolerance,
            std::function<bool(const peer_id&)> listed = {})
    : self_(self), tolerance_(tolerance), known_(std::move(listed)) {}

  /// The current claims of all peers.
  void observe(const swarm_progress& view);
  void on_connected(const peer_id& peer) { connected_.insert(peer); }
  void on_disconnected(const peer_id& peer) { connected_.erase(peer); }
  /// A round was completed by these peers.
  void on_round(const std::vector<peer_id>& contributors) { known_.on_round(contributors); }
  /// Takes part in the run's history `branch`, at this epoch.
  void enter(const digest& branch, epoch_id epoch);
  void leave();
  [[nodiscard]] bool is_member() const { return branch_.has_value(); }

  // -- REQUIRES: is_member() ----------------------------------------------------------------------

  [[nodiscard]] const digest& branch() const { return *branch_; }
  /// Our own epoch.
  [[nodiscard]] epoch_id epoch() const { return epoch_; }
  /// The later one of our own epoch and the run's.
  [[nodiscard]] epoch_id run_epoch() const;
  /// Our state is too old to train on.
  [[nodiscard]] bool left_behind() const {
    return run_epoch().value() - epoch_.value() > tolerance_;
  }
  /// This peer first, then the others in ascending order.
  [[nodiscard]] std::vector<peer_id> members() const;
  /// The number of other peers that can be averaged with now.
  [[nodiscard]] std::size_t partners() const;

  /// Our own epoch from now on.
  void set_epoch(epoch_id epoch) { epoch_ = epoch; }
  /// Our round is over: our epoch is the next one, or the run's.
  void end_epoch();

  /// The id of the call that begins the rounds of `epoch`.
  [[nodiscard]] round_id call_of(epoch_id epoch) const;
  /// A peer has sent this call. Ignored unless it is a member and the call is for our epoch or one
  /// of the next few. Bounded: only the latest epoch is kept.
  void on_call(const peer_id& from, const round_id& call);
  /// Whether a round of our epoch was called.
  [[nodiscard]] bool called() const { return called_ && *called_ == epoch_; }
  /// The number under which peers of this history meet in matchmaking, whatever their epochs.
  [[nodiscard]] epoch_id meeting() const;

  // -- before entering ----------------------------------------------------------------------------

  /// The epoch at which to enter this history; nothing if no peer trains it.
  [[nodiscard]] std::optional<epoch_id> epoch_of(const digest& branch) const;

private:
  /// What one of the others claims.
  struct claim {
    peer_id who;
    digest branch;
    epoch_id epoch;
    bool ready = false;
    bool leads = false; // it holds a state, and others can reach it: its epoch counts
  };

  peer_id self_;
  std::uint64_t tolerance_;
  /// The others that train this history, in ascending order of id.
  [[nodiscard]] std::vector<const claim*> peers_of(const digest& branch) const;

  evidence known_;
  std::vector<claim> others_;
  std::set<peer_id> connected_;
  std::optional<digest> branch_;
  epoch_id epoch_;
  std::optional<epoch_id> called_;
};

} // namespace waggle
