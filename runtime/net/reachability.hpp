#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "runtime/core/endpoint.hpp"
#include "runtime/core/time.hpp"

namespace waggle::net {

/// What a peer that was asked to dial us back found.
enum class dial_back_outcome : std::uint8_t {
  reached,
  not_reached,
  unknown, // it did not try, or did not answer
};

/// Finds out whether other peers reach the port that this peer announces: asks some of the peers
/// that it has dialled to dial it back. A peer that dialled us on its own is an answer, too. One
/// that reaches us outweighs those that do not: they may be behind the same router.
///
/// Two peers that others reach may still have no link with each other. They find that out in a
/// round that stalls, and both go on as clients, which need no link, until there is one.
///
/// A peer that nobody reaches, but that has met members through its router (punching), needs no
/// others to reach it as long as it has a link with all members that it meets.
///
/// Uses no network and no clock. Not thread-safe.
class reachability {
public:
  struct options {
    std::size_t asked_max = 3;         // peers per inquiry, on different hosts if possible
    milliseconds settle{200};          // after a link came up: more links may follow
    milliseconds apart{5'000};         // between two inquiries because of new links
    milliseconds if_unknown{10'000};   // until the next inquiry
    milliseconds if_reached{600'000};  // a forwarded port may be closed
    milliseconds if_closed{60'000};    // or opened
    milliseconds link_tried{60'000};   // between two attempts to link with a member
    milliseconds link_missed{600'000}; // without a round with it: it may be gone
    milliseconds relapse{60'000};      // after links came back: as often may a peer flap
    std::size_t unlinked_max = 64;
  };

  reachability() : reachability(options{}) {}
  explicit reachability(options opts) : options_(opts) {}

  /// A peer on `host` is connected; empty: its host is not known. `dialled`: by us.
  void connected(const peer_id& peer, const std::string& host, bool dialled, steady_time now);
  /// The same, though neither can dial the other alone.
  void punched(const peer_id& peer, steady_time now);
  void disconnected(const peer_id& peer);
  /// There is no link with this member of a round, which stalled because of that. If it did not,
  /// both are clients by now; the call shows that the member is still there.
  void unlinked(const peer_record& peer, bool stalled, steady_time now);
  /// There is no link with this peer, which is of our run, and punching has brought none.
  void missing(const peer_id& peer, steady_time now);

  /// Others may reach us now: our router passes connections on.
  void ask_soon(steady_time now) { due_ = now + options_.settle; }

  /// The peers to ask now. Report the outcome of each with `answered`.
  [[nodiscard]] std::vector<peer_id> due(steady_time now);
  /// When `due` may have something to ask.
  [[nodiscard]] std::optional<steady_time> next() const;
  void answered(const peer_id& peer, dial_back_outcome outcome, steady_time now);

  /// Members without a link that should be dialled again now.
  [[nodiscard]] std::vector<peer_record> links_due(steady_time now);

  /// Whether this peer should do without links to members that it does not reach.
  [[nodiscard]] bool client() const {
    bool shut = unreachable_ && (punched_.empty() || !missing_.empty());
    return shut || !unlinked_.empty();
  }
  /// Nobody of those that tried has reached us.
  [[nodiscard]] bool unreachable() const { return unreachable_; }
  /// A member without a link; null: none.
  [[nodiscard]] const peer_record* unlinked() const {
    return unlinked_.empty() ? nullptr : &unlinked_.begin()->second.peer;
  }

private:
  void conclude(steady_time now);
  void reached(steady_time now);
  void linked(const peer_id& peer, steady_time now);

  options options_;
  std::map<peer_id, std::string> peers_; // that we dialled, with their hosts; bounded by the links
  std::map<peer_id, std::optional<dial_back_outcome>> asked_; // in the inquiry that runs
  struct missing_link {
    peer_record peer;
    steady_time met; // in a round, the last time
    steady_time tried;
  };
  std::map<peer_id, missing_link> unlinked_; // bounded by unlinked_max
  std::optional<steady_time> all_linked_;    // since when none has been missing
  std::set<peer_id> punched_;                // those linked now; bounded by the links
  std::map<peer_id, steady_time> missing_;   // when met without a link; bounded by unlinked_max
  std::optional<steady_time> begun_;         // the last inquiry
  std::optional<steady_time> due_;           // the next one
  bool unreachable_ = false;
  std::size_t tried_ = 0;
};

/// Limits what others can have this peer dial: so many within a time, and so many for one host.
/// Not thread-safe.
class dial_back_limits {
public:
  struct options {
    std::size_t of_host_max = 16; // attempts
    std::size_t all_max = 64;
    milliseconds within{10'000};
  };

  dial_back_limits() : dial_back_limits(options{}) {}
  explicit dial_back_limits(options opts) : options_(opts) {}

  /// Whether a peer on `host` may be dialled back at so many ports now; counts them if so.
  [[nodiscard]] bool take(const std::string& host, std::size_t ports, steady_time now);

private:
  options options_;
  std::deque<std::pair<steady_time, std::string>> taken_; // bounded by all_max
};

} // namespace waggle::net
