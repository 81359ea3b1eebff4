#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <variant>
#include <vector>

#include "runtime/core/endpoint.hpp"
#include "runtime/core/error.hpp"
#include "runtime/core/ids.hpp"
#include "runtime/core/random.hpp"
#include "runtime/core/time.hpp"
#include "runtime/matchmaking/matchmaking_config.hpp"

namespace waggle {

/// Finds a group for one round: a state machine without a network.
///
/// Every searching peer has an expiration: the moment when it starts with the members it has. The
/// peer with the smallest (expiration, id) leads. A peer only follows a smaller one, so that there
/// are no cycles. A peer that is asked by a smaller one learns of it that way and asks it in turn.
/// A group of two that is complete while its leader asks a peer waits for the answer, for a short
/// time, and for those of others that are known to rank before it: if one of them accepts, it leads
/// a group that would fall apart without this peer. So of nodes in pairs, the one that has searched
/// for longest finds a partner. Larger groups begin at once, because they only become smaller.
///
/// An extra auxiliary joins a group beside its members: it never leads, and counts toward no size.
/// No search waits for it. It refuses requests, and asks in turn. A group begins with at most as
/// many of them as members, so that the members are a majority with their leader, and none keeps a
/// member out.
///
/// | state  | transitions |
/// |--------|--------------------------------------------------------------------------------------|
/// | seek   | asks one candidate at a time; accepted → follow; the group is complete, or expires |
/// |        | with min_group_size members → done. Others may join meanwhile |
/// | follow | the leader begins → done; disbands, leaves, is lost or silent → seek |
/// | done   | none |
///
/// Every input returns the actions to take, in order. Not thread-safe.
class group_search {
public:
  struct options {
    std::size_t min_group_size = 2;
    std::size_t target_group_size = 64; // the group is complete when this many are in it
    std::size_t members_max = 64;       // with extra auxiliaries
    std::size_t expected_peers = 0;     // or this many; 0: not known
    milliseconds min_matchmaking_time = matchmaking_config{}.min_matchmaking_time;
    milliseconds request_timeout{3'000};
    /// A candidate that refused for a temporary reason is asked again after this long, jittered.
    milliseconds retry{100};
    /// A complete group of two waits this long for the answers of those that may lead it.
    milliseconds answer_wait{500};
    milliseconds look_up_interval{500};
    /// A search that has seen no other peer for this long gives up; 0: only at the deadline.
    milliseconds alone_after{0};
  };
  /// A peer that wants a group.
  struct seeker {
    peer_record record;
    bool client = false; // never leads, accepts no peer
    bool extra = false;  // an auxiliary that never leads and counts toward no size
    // Not used by the search; passed on:
    std::optional<double> bandwidth;
    std::uint32_t mode = 0;
    std::string gather;
    bool bandwidth_declared = false; // otherwise measured

    [[nodiscard]] bool never_leads() const { return client || extra; }
  };
  struct moment {
    steady_time steady;
    swarm_time swarm;
  };

  // -- outputs ------------------------------------------------------------------------------------

  struct declare {
    swarm_time expiration;
  };
  struct withdraw {}; // withdraw the declaration
  struct look_up {};  // read the declarations of other peers
  struct ask {
    peer_record to;
    swarm_time expiration;
  };
  struct leave {
    peer_record leader;
  };
  struct disband {
    std::vector<peer_record> followers;
    std::optional<peer_record> suggested;
  };
  /// We lead a group that begins now: ourselves and these, in random order.
  struct begin {
    std::vector<seeker> followers;
  };
  struct failed {
    failure why;
  };
  using action = std::variant<declare, withdraw, look_up, ask, leave, disband, begin, failed>;
  using actions = std::vector<action>;

  group_search(seeker self, options opts, steady_time deadline, random_source random);

  // -- inputs -------------------------------------------------------------------------------------

  [[nodiscard]] actions start(moment now);
  /// A peer that declared, or (without expiration) is connected and may be searching, too.
  void candidate(const peer_record& peer, std::optional<swarm_time> expiration);
  /// Must be called regularly, about every 20 ms; deadlines are checked here.
  [[nodiscard]] actions on_time(moment now);
  [[nodiscard]] actions cancel(failure why);

  struct join_answer {
    ec code = ec::none;
    std::optional<peer_record> suggested;
    actions then;
  };
  /// A request to join our group. The caller has checked that both want the same kind of group.
  [[nodiscard]] join_answer on_join(const seeker& asker, swarm_time expiration, moment now);
  /// `asker` asked and was refused, by `on_join` or before: reported as a reason if this search
  /// finds no group.
  void turned_away(const peer_id& asker, ec why);
  /// The answer to `ask`, or why there is no answer.
  [[nodiscard]] actions on_answer(const peer_id& from, ec code,
                                  const std::optional<peer_record>& suggested, moment now);
  /// Returns true if `from` is the leader that we follow or asked: the search is over.
  [[nodiscard]] bool on_begin(const peer_id& from);
  /// Our followers: after on_begin they need another leader.
  [[nodiscard]] std::vector<peer_record> take_followers();
  [[nodiscard]] actions on_disband(const peer_id& from, const std::optional<peer_record>& suggested,
                                   moment now);
  void on_leave(const peer_id& from) { followers_.erase(from); }
  [[nodiscard]] actions on_lost(const peer_id& peer, moment now);

  [[nodiscard]] bool done() const { return done_; }
  /// When this search begins with the members that it has, or declares again.
  [[nodiscard]] swarm_time expiration() const { return expiration_; }
  [[nodiscard]] const std::optional<peer_record>& leader() const { return leader_; }
  [[nodiscard]] std::size_t followers() const { return followers_.size(); }

private:
  struct known_peer {
    peer_record record;
    std::optional<swarm_time> expiration;
    std::optional<steady_time> again; // ask it again not before this; nothing: at once
    std::optional<ec> hopeless;       // it will refuse with this for the rest of this search
    bool asked = false;
    ec said = ec::none; // its last answer; ec::not_looking never replaces another one
  };
  using rank = std::pair<swarm_time, peer_id>;

  [[nodiscard]] rank own_rank() const { return {expiration_, self_.record.id}; }
  /// Of our group, without extra auxiliaries.
  [[nodiscard]] std::size_t size() const;
  [[nodiscard]] bool has_room_for(const seeker& asker) const;
  [[nodiscard]] std::size_t extra_followers() const { return followers_.size() + 1 - size(); }
  void drop_extra(actions& out);
  [[nodiscard]] bool complete() const;
  /// The time from now until our expiration, when the group starts with the members it has.
  [[nodiscard]] steady_time::duration wait_max(moment now) const;
  void redeclare(actions& out, moment now);
  void begin_group(actions& out);
  [[nodiscard]] bool has_answer_to_wait_for(moment now) const;
  [[nodiscard]] const known_peer* next_candidate(moment now, bool must_lead) const;
  void ask_next(actions& out, moment now);
  void send_ask(actions& out, const peer_record& to, moment now);
  void give_up_followers(actions& out, const std::optional<peer_record>& suggested);
  void note(known_peer& peer, ec said) const;
  /// `code`: why it did not take us in. Determines when it is asked again.
  void note_refusal(known_peer& peer, ec code, moment now);
  [[nodiscard]] failure reason(moment now) const;
  [[nodiscard]] std::string summary(moment now) const;

  seeker self_;
  options options_;
  steady_time deadline_;
  random_source random_;

  bool started_ = false;
  steady_time began_{};
  bool done_ = false;
  swarm_time expiration_{};
  std::map<peer_id, seeker> followers_;
  steady_time completed_{};             // when the group was last complete
  std::map<peer_id, known_peer> known_; // bounded by candidates_max
  std::optional<peer_record> asking_;
  steady_time asked_;
  bool disbanded_ = false; // by the peer that we are asking
  std::optional<peer_record> leader_;
  std::optional<peer_record> suggested_;
  steady_time looked_up_;
  std::map<peer_id, ec> turned_away_; // bounded by candidates_max
  std::size_t largest_group_ = 1;     // that we led
};

} // namespace waggle
