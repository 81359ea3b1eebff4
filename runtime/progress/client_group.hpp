#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "runtime/progress/evidence.hpp"
#include "runtime/progress/history_choice.hpp"
#include "runtime/progress/sample_claims.hpp"

namespace waggle {

/// The inputs of an auxiliary without a model when it checks whether clients need it.
struct helper_state {
  peer_id self;
  history past;              // of its group
  epoch_id epoch;            // of its group's next round
  std::set<peer_id> members; // of its group, including itself; empty: it is in no group
  std::set<peer_id> links;   // the peers that it is connected to
  /// The peers with which it completed rounds; null: none. What these claim is believed.
  const evidence* known = nullptr;
  std::vector<swarm_progress::peer> connected{}; // reports of peers that it has a link with
};

struct help_choice {
  /// choose_history's: `enter` names the group to enter, from whatever group it is in.
  history_choice preferred;
  bool needed = false; // false: it enters none, or its group has no client any more
};

/// Clients accept no connections and never reduce: in a group of clients only, no member can lead,
/// and no peer can join through one. An auxiliary enters such a group, even that of a single
/// client, of the history that choose_history prefers; it does not enter groups with a member that
/// others can reach. Once in, it stays while the group has a client and its history is preferred,
/// even if reachable trainers join, so that nothing changes when they leave.
///
/// Anybody can claim to be a reachable member of that group. Where we know peers of it, such a
/// claim counts if we know its peer, too, or if more than half of those that we know report a group
/// that is larger than the number of its clients.
help_choice choose_help(const helper_state& own);

/// The number of clients among the members of its group. A member that is connected and has not
/// reported anything yet counts as a client.
std::uint32_t clients_among(const helper_state& own);

/// The samples that count toward the epoch of the auxiliary's group, and the target that most of
/// its members report, or most of those that we know if there are any; target 0: no member reported
/// one. Clients receive nothing from each other, so the auxiliary has to detect when the epoch is
/// full.
struct group_samples {
  std::uint64_t samples = 0;
  std::uint64_t target = 0;

  [[nodiscard]] bool full() const { return target > 0 && samples >= target; }
};
group_samples samples_toward(const helper_state& own, const sample_claims& claims, steady_time now);

/// Larger than the target of any run; the sum over 64 members does not overflow.
constexpr std::uint64_t helper_target_max = std::uint64_t{1} << 56U;

/// Passes what the members of the auxiliary's group claim toward its epoch on to `claims`.
void observe_samples(const helper_state& own, sample_claims& claims);

/// Whether the weight of a complete round shows that its weights are samples. An auxiliary is not
/// informed of what its group averages. Where that is parameters, each contributor that trains has
/// weight 1, and the claimed samples cannot be compared with the weight.
bool weighs_samples(double weight_sum, std::size_t contributors);

/// The peers that can send the state of the auxiliary's group: the members with which it completed
/// rounds; if none of these has it, the other members; if no member has it, others that train the
/// history and with which it completed rounds. Nobody else: anybody can claim to hold a state.
std::vector<peer_record> holders_of(const helper_state& own);

/// In which group of clients an auxiliary without a model is, and what it should do: enter one,
/// leave it, or call its round. Histories are believed by the peers with which it completed rounds,
/// samples as far as they are delivered.
///
/// | place    | transitions                                                                      |
/// |----------|----------------------------------------------------------------------------------|
/// | outside  | clients alone in a group → entering                                              |
/// | entering | admitted → member; refused, lost, timeout → outside                              |
/// | member   | no client left, another history, round failed or decided without us → outside    |
///
/// Its caller carries the actions out, and reports what came of them. Not thread-safe.
class client_group {
public:
  enum class place : std::uint8_t { outside, entering, member };
  struct options {
    milliseconds entry_pause{200}; // as in help_config
    milliseconds patience_without_clients{1'000};
  };
  struct action {
    std::optional<history_choice> choice; // none: nothing was compared
    std::string leave;                    // why it leaves its group; empty: it stays
    bool enter = false;                   // that of `choice`, after it has left
    bool call = false;                    // a round of its group
  };

  /// @param listed as in evidence.
  client_group(const peer_id& self, options how, std::function<bool(const peer_id&)> listed = {})
    : how_(how), own_{self, {}, {}, {}, {}, &known_}, known_(std::move(listed)) {}
  client_group(const client_group&) = delete;
  client_group& operator=(const client_group&) = delete;

  /// @param peers what others report.
  [[nodiscard]] action decide(const std::vector<swarm_progress::peer>& peers, steady_time now);

  void on_connected(const peer_id& peer) { own_.links.insert(peer); }
  void on_disconnected(const peer_id& peer);

  // -- transitions --------------------------------------------------------------------------------

  /// enter_group was sent. REQUIRES: no member.
  void asked() { place_ = place::entering; }
  /// Admitted. REQUIRES: entering.
  void entered(const history& past, epoch_id epoch, const std::vector<peer_id>& members,
               steady_time now);
  /// @param too_long the vectors of these peers are: they are not asked again while connected.
  void refused(const std::vector<peer_record>& too_long, steady_time now);
  void take_members(const std::vector<peer_id>& members) {
    own_.members = {members.begin(), members.end()};
  }
  /// Returns the number of the round; 0: one runs already.
  std::uint64_t begin_round(steady_time now);
  /// Whether that round is still the group's.
  [[nodiscard]] bool awaits(std::uint64_t round) const { return in_round_ && round == rounds_; }
  /// The round has succeeded: `past` is the history from now on. Compares what its members claimed
  /// with its weight. Returns what is missing.
  sample_claims::shortfall advance(const history& past, const std::vector<peer_id>& contributors,
                                   const std::vector<peer_id>& participants, double weight_sum,
                                   bool complete, steady_time now);
  void left(steady_time now);

  // -- where it is --------------------------------------------------------------------------------

  [[nodiscard]] bool is_member() const { return place_ == place::member; }
  [[nodiscard]] bool is_member_at(epoch_id epoch) const {
    return is_member() && epoch == own_.epoch;
  }
  [[nodiscard]] const history& past() const { return own_.past; }
  [[nodiscard]] epoch_id epoch() const { return own_.epoch; }
  [[nodiscard]] history_claim claim() const;
  [[nodiscard]] std::uint32_t clients() const { return clients_among(own_); }
  /// The peers that can send the group's state.
  [[nodiscard]] std::vector<peer_record> holders() const { return holders_of(own_); }
  /// Peers whose samples do not count.
  [[nodiscard]] std::size_t suspects(steady_time now) const { return claims_.suspects(now); }

private:
  const options how_;
  helper_state own_; // members empty: outside; connected: without those that are refused
  place place_ = place::outside;
  bool in_round_ = false;
  std::uint64_t rounds_ = 0; // number of the last one begun
  steady_time enter_after_;
  std::optional<steady_time> clientless_since_;
  std::set<peer_id> refused_; // clients whose vectors are too long for us, while connected
  evidence known_;
  sample_claims claims_{helper_target_max};
  bool weighs_samples_ = false; // a round of our group has shown it
};

} // namespace waggle
