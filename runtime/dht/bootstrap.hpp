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

/// How a peer gets into a run, and back into it after a split or a restart (spec/dht.md §4.2): the
/// addresses that it was given, the peers that it knew when it was last there, and those that it
/// has lost since. Says whom to dial and when; has no network and no clock. Not thread-safe.
///
/// Each of them has its own back-off, so that an address that hangs delays no other. Pauses begin
/// short and double up to `retry_quick`; later they are a thirty-second of the time that the other
/// side has been away. So a cut of a minute is over a few seconds after it heals, and an address
/// that has been dead for half an hour is dialled once a minute.
class bootstrap {
public:
  struct options {
    milliseconds retry_min{250};     // after the first failure
    milliseconds redial_after{200};  // after a link broke
    milliseconds retry_quick{1'000}; // at most, while the other side has not been away for long
    milliseconds retry_max{60'000};  // at most, for ever
    /// After links that broke sooner the pauses grow up to `retry_max`: somebody accepts us and
    /// then drops us, again and again.
    milliseconds settled_after{10'000};
    std::size_t lost_max = 64; // the one that has been away longest is forgotten first
    /// Of the peers known from earlier so many are dialled each second, until as many are
    /// connected: that is enough to find the others.
    std::size_t known_at_once = 8;
  };

  bootstrap(options opts, random_source random) : options_(opts), random_(std::move(random)) {}

  /// Where to join: addresses that the operator gave, and peers known from earlier, newest first.
  /// No address at all: the run begins here.
  void join_at(const std::vector<endpoint>& initial, const std::vector<known_peer>& known,
               steady_time now);

  /// True once this peer is part of the run: another one answered; or there is no address to join
  /// at; or one of the initial addresses is our own, and all others failed. Stays true.
  [[nodiscard]] bool joined() const { return joined_; }
  /// Whether there was an address to join at, given or known, besides our own.
  [[nodiscard]] bool addresses_known() const { return addresses_known_; }
  /// How many initial addresses there are, without our own.
  [[nodiscard]] std::size_t initial_addresses() const;
  /// "host:port: reason" of every initial address that failed last time.
  [[nodiscard]] std::vector<std::string> failures() const;

  // -- dialling -----------------------------------------------------------------------------------

  /// Addresses to dial now. Each owes a `reached` or a `failed`.
  [[nodiscard]] std::vector<endpoint> due(steady_time now);
  /// When somebody is due next; nothing if nobody is.
  [[nodiscard]] std::optional<steady_time> next() const;

  void reached(const endpoint& where, const peer_id& who, steady_time now);
  /// True if this is an initial address that failed for the first time since it was last reached.
  /// An address that leads to ourselves (ec::duplicate_identity) is not dialled again.
  bool failed(const endpoint& where, const failure& why, steady_time now);

  // -- links --------------------------------------------------------------------------------------

  /// True if this is how we joined.
  bool connected(const peer_record& peer, steady_time now);
  /// Dialled again soon, unless it said goodbye (ec::shutting_down) and was no initial peer.
  void disconnected(const peer_id& peer, ec why, steady_time now);

private:
  /// Somebody to dial whenever there is no link: an initial address, or a peer.
  struct target {
    bool initial = false;
    bool from_earlier = false; // known from an earlier life, not met since
    peer_id peer;              // zero: an initial address where nobody has answered yet
    std::vector<endpoint> addresses;
    std::size_t turn = 0; // which of them is, or was, dialled
    bool dialling = false;
    unsigned failures = 0;    // to reach it, in a row
    unsigned short_links = 0; // in a row: broken before they had settled
    std::string why;          // of the last one; empty: none since it was last reached
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
  void remember_lost(const peer_id& peer, const connection& link, bool settled, steady_time now);
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
