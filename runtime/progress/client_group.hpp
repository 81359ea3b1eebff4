#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "runtime/progress/evidence.hpp"
#include "runtime/progress/help_choice.hpp"
#include "runtime/progress/sample_claims.hpp"

namespace waggle {

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
    std::optional<help_choice> choice; // none: nothing was compared
    std::string leave;                 // why it leaves its group; empty: it stays
    bool enter = false;                // that of `choice`, after it has left
    bool call = false;                 // a round of its group
  };

  client_group(const peer_id& self, options how)
    : how_(how), own_{self, {}, {}, {}, {}, &known_} {}
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
  [[nodiscard]] std::uint32_t clients() const { return clients_among(own_, connected_); }
  /// The peers that can send the group's state.
  [[nodiscard]] std::vector<peer_record> holders() const { return holders_of(own_, connected_); }
  /// Peers whose samples do not count.
  [[nodiscard]] std::size_t suspects(steady_time now) const { return claims_.suspects(now); }

private:
  const options how_;
  /// The reports of peers that we have a link with and whose vectors are not too long for us.
  std::vector<swarm_progress::peer> connected_;
  helper_state own_; // members empty: outside
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
