#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "runtime/core/endpoint.hpp"
#include "runtime/core/error.hpp"
#include "runtime/core/random.hpp"
#include "runtime/core/time.hpp"
#include "runtime/dht/known_peers.hpp"

namespace waggle {

/// Decides which addresses to dial, and when, to join a run, and to rejoin it after a network split
/// or a restart. The targets are the configured initial addresses, the peers known from the last
/// session, and peers lost since. Uses no network and no clock. Not thread-safe.
///
/// Each target has its own back-off, so that an address that hangs does not delay others. Pauses
/// begin short and double up to `retry_quick`; later they are 1/32 of the time that the target has
/// been unreachable. So after a cut of a minute peers reconnect a few seconds after it heals, and
/// an address that has been dead for half an hour is dialled once a minute.
class bootstrap {
public:
  struct options {
    milliseconds retry_min{250};     // after the first failure
    milliseconds redial_after{200};  // after a link broke
    milliseconds retry_quick{1'000}; // longest pause while the target was lost recently
    milliseconds retry_max{60'000};  // longest pause
    /// If links break sooner than this, the pauses grow up to `retry_max`: a peer accepts and then
    /// drops us repeatedly.
    milliseconds settled_after{10'000};
    std::size_t lost_max = 64; // the peer that was lost first is forgotten first
    /// Of these, strangers: anybody can connect, announce any address, and leave.
    std::size_t lost_strangers_max = 16;
    /// This many of the peers known from earlier are dialled per second, until as many are
    /// connected: that is enough to find the others.
    std::size_t known_at_once = 8;
  };

  bootstrap(options opts, random_source random) : options_(opts), random_(std::move(random)) {}

  /// The addresses to join at: those that the operator gave, and peers known from earlier, newest
  /// first. Without any address, this peer starts the run.
  void join_at(const std::vector<endpoint>& initial, const std::vector<known_peer>& known,
               steady_time now);

  /// True once this peer is part of the run: another peer answered; or there is no address to join
  /// at; or one of the initial addresses is our own and all others failed. Stays true.
  [[nodiscard]] bool joined() const { return joined_; }
  /// Whether there was an address to join at, given or known, other than our own.
  [[nodiscard]] bool addresses_known() const { return addresses_known_; }
  /// How many initial addresses there are, without our own.
  [[nodiscard]] std::size_t initial_addresses() const;
  /// "host:port: reason" for every initial address whose last attempt failed.
  [[nodiscard]] std::vector<std::string> failures() const;

  // -- dialling -----------------------------------------------------------------------------------

  /// Addresses to dial now. Report each outcome with `reached` or `failed`.
  [[nodiscard]] std::vector<endpoint> due(steady_time now);
  /// When the next target is due; nothing if there is none.
  [[nodiscard]] std::optional<steady_time> next() const;

  void reached(const endpoint& where, const peer_id& who, steady_time now);
  /// True if this is an initial address that failed for the first time since it was last reached.
  /// An address that is our own (ec::duplicate_identity) is not dialled again.
  bool failed(const endpoint& where, const failure& why, steady_time now);

  // -- links --------------------------------------------------------------------------------------

  /// True if this peer joined the run by this link.
  bool connected(const peer_record& peer, steady_time now);
  /// The peer is dialled again soon, unless it sent a goodbye (ec::shutting_down) and is not an
  /// initial peer.
  /// @param stranger we have not averaged with it.
  void disconnected(const peer_id& peer, ec why, steady_time now, bool stranger = false);

private:
  /// An initial address or a peer, dialled whenever there is no link to it.
  struct target {
    bool initial = false;
    bool from_earlier = false; // known from before a restart, not reached since
    bool stranger = false;     // we have not averaged with it
    peer_id peer;              // zero: an initial address that has not answered yet
    std::vector<endpoint> addresses;
    std::size_t turn = 0; // index of the address dialled now or last
    bool dialling = false;
    unsigned failures = 0;    // consecutive failed attempts
    unsigned short_links = 0; // consecutive links that broke before `settled_after`
    std::string why;          // of the last failure; empty: none since it was last reached
    steady_time away_since;
    steady_time due;

    [[nodiscard]] const endpoint& address() const { return addresses[turn % addresses.size()]; }
  };
  struct connection {
    std::vector<endpoint> addresses;
    steady_time since;
  };

  [[nodiscard]] bool waits(const target& t) const;
  [[nodiscard]] bool dialling(const endpoint& where) const;
  [[nodiscard]] target* dialled(const endpoint& where);
  [[nodiscard]] milliseconds jittered(milliseconds pause);
  void back_off(target& t, steady_time now);
  void link_broke(target& t, bool settled, steady_time now);
  void remember_lost(const peer_id& peer, const connection& link, bool stranger, bool settled,
                     steady_time now);
  void forget_one(bool strangers);
  void join_if_alone();

  options options_;
  random_source random_;
  std::vector<target> targets_; // the initial addresses, and at most lost_max peers
  std::map<peer_id, connection> connected_;
  bool joined_ = false;
  bool addresses_known_ = false;
  bool ourselves_ = false; // one of the initial addresses is our own
};

} // namespace waggle
