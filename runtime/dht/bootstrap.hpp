#pragma once

#include <deque>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "runtime/core/endpoint.hpp"
#include "runtime/core/error.hpp"
#include "runtime/core/random.hpp"
#include "runtime/core/time.hpp"

namespace waggle {

/// How a peer gets into a run, and back into it after a split (spec/dht.md §4.2): the addresses
/// that it was given, and the peers that it lost. Says whom to dial, and when to try again; has no
/// network and no clock. Not thread-safe.
///
/// While nobody is known, attempts follow each other with growing pauses, one retry at a time.
/// Later every upkeep looks in on initial peers and lost peers that are not connected: two halves
/// of a run find each other again through either.
class bootstrap {
public:
  struct options {
    milliseconds retry_min{1'000};
    milliseconds retry_max{60'000};
    std::size_t lost_max = 32; // the oldest is forgotten first
  };

  explicit bootstrap(options opts) : options_(opts) {}

  /// Where to join. None: the run begins here.
  void join_at(std::vector<endpoint> addresses);
  /// True once this peer is part of the run, alone or with others. Stays true.
  [[nodiscard]] bool joined() const { return joined_; }

  // -- initial addresses --------------------------------------------------------------------------

  /// Addresses to dial now: all but those of peers that are connected. Each owes a `reached` or a
  /// `failed`.
  [[nodiscard]] std::vector<endpoint> dial();
  /// The same at upkeep, and when a retry's time has come: none if an attempt is under way, or its
  /// turn comes later.
  [[nodiscard]] std::vector<endpoint> look_in();
  [[nodiscard]] std::vector<endpoint> retry();

  void reached(const endpoint& where, const peer_id& who);
  /// True if this address failed for the first time since it was last reached. Our own address
  /// (ec::duplicate_identity) is not dialled again: there is nobody to join there.
  bool failed(const endpoint& where, const failure& why);
  [[nodiscard]] bool dialling() const { return owed_ > 0; }

  /// To be called when an attempt is over. `alone`: nobody is known still. Returns the pause before
  /// `retry`, jittered by a quarter; nothing if there is no need, or if one is due already.
  [[nodiscard]] std::optional<milliseconds> pause(bool alone, random_source& random);

  /// "host:port: reason" of every address that failed last time.
  [[nodiscard]] std::vector<std::string> failures() const;

  // -- peers --------------------------------------------------------------------------------------

  /// True if this is how we joined.
  bool connected(const peer_id& peer);
  void disconnected(const peer_id& peer) { connected_.erase(peer); }
  [[nodiscard]] bool any_connected() const { return !connected_.empty(); }
  /// It may come back. Has an address.
  void lost(const peer_record& peer);
  /// The lost peer whose turn it is to be dialled; each in turn, until it is connected.
  [[nodiscard]] std::optional<peer_record> next_lost();

private:
  options options_;
  std::vector<endpoint> addresses_;
  std::map<endpoint, peer_id> found_; // who answered there
  std::map<endpoint, std::string> failures_;
  std::size_t owed_ = 0;
  milliseconds pause_{0};
  bool retry_due_ = false;
  bool joined_ = false;
  std::set<peer_id> connected_;
  std::deque<peer_record> lost_; // oldest first; bounded by lost_max
};

} // namespace waggle
