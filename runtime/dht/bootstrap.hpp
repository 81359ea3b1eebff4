#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "runtime/core/endpoint.hpp"
#include "runtime/core/error.hpp"
#include "runtime/core/notice.hpp"
#include "runtime/core/random.hpp"
#include "runtime/core/result.hpp"
#include "runtime/core/time.hpp"
#include "runtime/dht/known_peers.hpp"

namespace waggle {

/// Decides which names to resolve and which addresses to dial, and when, to join a run, and to
/// rejoin it after a network split or a restart. The targets are the configured initial addresses,
/// the peers known from the last session, and peers lost since. Uses no network and no clock. Not
/// thread-safe.
///
/// A target has one or several addresses. The operator may give a name, which stands for the
/// addresses that it is resolved to, repeatedly: they may belong to one peer, to several, or to
/// this one. Each address is judged by its own answers. Those of one target are first tried
/// `apart`, or sooner if one fails (RFC 8305), so that an address that hangs delays no other.
///
/// Each address has its own back-off. Pauses begin short and double up to `retry_quick`; later they
/// are 1/32 of the time that the address has been unreachable. So after a cut of a minute peers
/// reconnect a few seconds after it heals, and an address that has been dead for half an hour is
/// dialled once a minute.
///
/// An address that leads to this peer itself is not dialled again if its name has others. Alone, it
/// may be that of a server which deals its connections to several peers, so it is tried again:
/// often at first, then every minute. So is one that has led to different peers, also while one of
/// them is connected.
class bootstrap {
public:
  struct options {
    milliseconds retry_min{250};     // after the first failure
    milliseconds redial_after{200};  // after a link broke
    milliseconds retry_quick{1'000}; // longest pause while the target was lost recently
    milliseconds retry_max{60'000};  // longest pause
    milliseconds knock{2'000};       // longest pause at who may put us on the list of members
    milliseconds apart{250};         // between the first attempts at the addresses of one target
    milliseconds ourselves_min{50};  // after an address first led to this peer itself
    /// An address that has led so many times to this peer itself, and to no other, is taken for its
    /// own: the run may begin here.
    unsigned own_after = 4;
    /// A name through which a peer is connected is resolved again after this time.
    milliseconds resolve_again{30'000};
    /// If links break sooner than this, the pauses grow up to `retry_max`: a peer accepts and then
    /// drops us repeatedly.
    milliseconds settled_after{10'000};
    std::size_t lost_max = 64; // the peer that was lost first is forgotten first
    /// Of these, strangers: anybody can connect, announce any address, and leave.
    std::size_t lost_strangers_max = 16;
    /// This many of the peers known from earlier are dialled per second, until as many are
    /// connected: that is enough to find the others. Further addresses of a name are not dialled
    /// then, either.
    std::size_t known_at_once = 8;
  };

  bootstrap(options opts, random_source random) : options_(opts), random_(std::move(random)) {}

  /// The addresses to join at: those that the operator gave, and peers known from earlier, newest
  /// first. Without any address, this peer starts the run. `names`: which of `initial` have to be
  /// resolved.
  void join_at(const std::vector<endpoint>& initial, const std::vector<known_peer>& known,
               steady_time now, const std::set<endpoint>& names = {});

  /// True once this peer is part of the run: another peer answered; or there is no address to join
  /// at; or one of the initial addresses is our own and all others failed. Stays true.
  [[nodiscard]] bool joined() const { return joined_; }
  /// Whether there was an address to join at, given or known, other than our own.
  [[nodiscard]] bool addresses_known() const { return addresses_known_; }
  /// How many initial addresses there are, without our own.
  [[nodiscard]] std::size_t initial_addresses() const;
  /// "host:port: reason" for every initial address at which nobody answers: the last attempt
  /// failed, and so did those at all addresses of a name.
  [[nodiscard]] std::vector<std::string> failures() const;
  /// What the operator should know about the initial addresses although this peer has joined;
  /// empty: nothing.
  [[nodiscard]] notice seen() const;

  // -- resolving ----------------------------------------------------------------------------------

  /// Names to resolve now. Report each outcome with `resolved`.
  [[nodiscard]] std::vector<endpoint> unresolved(steady_time now);
  /// True if resolving this name failed for the first time since it last succeeded, and not because
  /// this peer stops.
  bool resolved(const endpoint& name, const result<std::vector<endpoint>>& found, steady_time now);

  // -- dialling -----------------------------------------------------------------------------------

  /// Addresses to dial now. Report each outcome with `reached`, `met_ourselves` or `failed`.
  [[nodiscard]] std::vector<endpoint> due(steady_time now);
  /// What the operator gave, if `where` is being dialled for it.
  [[nodiscard]] std::optional<endpoint> given_for(const endpoint& where);
  /// When the next target is due; nothing if there is none.
  [[nodiscard]] std::optional<steady_time> next() const;

  void reached(const endpoint& where, const peer_id& who, steady_time now);
  /// The address led to this very process.
  void met_ourselves(const endpoint& where, steady_time now);
  /// True if this is an initial address that failed for the first time for this reason since it was
  /// last reached, and neither this peer nor the one there has ended in order.
  bool failed(const endpoint& where, const failure& why, steady_time now);

  // -- links --------------------------------------------------------------------------------------

  /// True if this peer joined the run by this link. Called again when the peer announces others
  /// addresses.
  bool connected(const peer_record& peer, steady_time now);
  /// The peer is dialled again soon, unless it sent a goodbye (ec::shutting_down) and is not an
  /// initial peer.
  /// @param stranger we have not averaged with it.
  void disconnected(const peer_id& peer, ec why, steady_time now, bool stranger = false);

private:
  struct address {
    endpoint where;
    peer_id peer; // who answered last, of an initial address; zero: nobody, or ourselves
    bool dialling = false;
    bool shared = false;      // has led to different peers
    bool left = false;        // who answered last has said goodbye
    unsigned meetings = 0;    // consecutive attempts that led to ourselves
    unsigned failures = 0;    // consecutive failed attempts
    unsigned repeats = 0;     // attempts since it was found to be shared
    unsigned short_links = 0; // consecutive links that broke before `settled_after`
    std::string why;          // of the last failure; empty: none since it was last reached
    std::set<ec> reasons;     // of all failures since
    steady_time away_since;
    steady_time due;

    void clear_reasons() {
      why.clear();
      reasons.clear();
    }
    [[nodiscard]] bool untried() const { return why.empty() && meetings == 0 && peer.is_zero(); }
  };
  /// An initial address or a peer, dialled whenever there is no link to it.
  struct target {
    std::optional<endpoint> given; // an initial address
    bool from_earlier = false;     // known from before a restart, not reached since
    bool stranger = false;         // we have not averaged with it
    peer_id peer;                  // zero: an initial address
    std::vector<address> addresses;
    steady_time away_since; // of a peer

    // Of a name.
    bool is_name = false;
    bool resolving = false;
    unsigned resolutions = 0; // since a peer was last connected through it
    std::string why;          // it could not be resolved
    steady_time resolve_at;
  };
  struct connection {
    std::vector<endpoint> addresses;
    steady_time since;
  };
  /// An attempt that is under way.
  struct attempt {
    target* of = nullptr;
    address* at = nullptr;
  };

  [[nodiscard]] bool linked(const target& t) const;
  [[nodiscard]] bool waits(const target& t, const address& a) const;
  [[nodiscard]] attempt dialled(const endpoint& where);
  [[nodiscard]] bool is_own(const target& t) const;
  [[nodiscard]] bool nobody_answers(const target& t) const;
  [[nodiscard]] std::vector<address> fresh(const std::vector<endpoint>& all, steady_time first,
                                           steady_time now) const;
  [[nodiscard]] milliseconds jittered(milliseconds pause);
  [[nodiscard]] milliseconds longest_pause(steady_time away_since, steady_time now) const;
  void back_off(const target& t, address& a, steady_time now);
  void try_another(target& t, steady_time now);
  void forget(const attempt& ended);
  void link_broke(address& a, bool settled, steady_time now);
  void remember_lost(const peer_id& peer, const connection& link, bool stranger, bool settled,
                     steady_time now);
  void make_room(bool for_stranger);
  void join_if_alone();

  options options_;
  random_source random_;
  std::vector<target> targets_; // the initial addresses, and at most lost_max peers
  std::map<peer_id, connection> connected_;
  bool joined_ = false;
  bool addresses_known_ = false;
};

} // namespace waggle
