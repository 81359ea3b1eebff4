#pragma once

#include <optional>
#include <set>
#include <vector>

#include <caf/all.hpp>

#include "actors/actors.hpp"
#include "actors/node_context.hpp"
#include "actors/training/request_state.hpp"
#include "actors/training/training_config.hpp"
#include "runtime/progress/doubts.hpp"
#include "runtime/progress/evidence.hpp"
#include "runtime/progress/help_choice.hpp"
#include "runtime/progress/sample_claims.hpp"
#include "runtime/training/training_state.hpp"

namespace waggle {

/// The actors that the helper works with.
struct helper_peers {
  group_averager_actor averager; // an auxiliary that adopts any group's terms
  progress_tracker_actor tracker;
  switchboard_actor switchboard;
  metrics_exporter_actor exporter;
};

/// To itself: check periodically.
struct look_for_clients {};

using group_helper_base = group_helper_actor::extend<caf::reacts_to<look_for_clients>>::base;

/// Makes a peer without a model enter groups of clients, which cannot reach each other, and lead
/// and reduce there; runtime/progress/help_choice.hpp decides when. Clients do not receive each
/// other's progress, so this actor calls the round when their samples reach the target. It has no
/// state of the run, but passes one on: it answers requests with a state that it downloads from a
/// member.
///
/// What others claim is believed as by a trainer: histories by the peers with which it completed
/// rounds, samples as far as they are delivered, and the state that most members offer.
///
/// | place    | transitions                                                                      |
/// |----------|----------------------------------------------------------------------------------|
/// | outside  | clients alone in a group → entering                                              |
/// | entering | admitted → member; refused, lost, timeout → outside                              |
/// | member   | no client left, another history, round failed or decided without us → outside    |
class group_helper final : public group_helper_base {
public:
  group_helper(caf::actor_config& cfg, node_context ctx, help_config config, helper_peers peers);

  const char* name() const override { return "group-helper"; }
  void on_exit() override;

protected:
  behavior_type make_behavior() override;

private:
  enum class place : std::uint8_t { outside, entering, member };
  struct waiting_reader {
    get_state_snapshot wanted;
    caf::typed_response_promise<state_snapshot> promise;
  };

  [[nodiscard]] steady_time now() const { return clock().now(); }

  void react();
  void enter(const help_choice& choice);
  void leave(const std::string& why);
  void begin_round();
  void on_round(const group_round& round);
  void check_deliveries(const round_report& report);
  void disbelieve(std::string_view kind, const std::string& what);
  void show_doubts();
  void take_members(const group_view& group);
  void tell();

  caf::result<state_snapshot> snapshot(const get_state_snapshot& wanted);
  [[nodiscard]] bool answers(const get_state_snapshot& wanted) const;
  void fetch();
  void on_no_state(const failure& why, bool tie);
  void stop_fetching(const failure& why);
  void on_fetched(const fetched_state& fetched);
  [[nodiscard]] failure check_fetched(const fetched_state& fetched,
                                      const result<training_state>& state) const;
  void refuse_readers(const failure& why);

  const node_context ctx_;
  const help_config config_;
  helper_peers peers_;

  /// The reports of peers that we have a link with and whose vectors are not too long for us.
  std::vector<swarm_progress::peer> connected_;
  swarm_progress view_;
  helper_state own_; // members empty: outside
  place place_ = place::outside;
  bool in_round_ = false;
  std::uint64_t elements_ = 0; // group_view::elements
  std::uint64_t rounds_ = 0;   // number of the last one begun
  steady_time enter_after_;
  std::optional<steady_time> clientless_since_;
  std::set<peer_id> refused_; // clients whose vectors are too long for us, while connected

  // -- what is believed
  evidence known_;
  sample_claims claims_{helper_target_max};
  bool weighs_samples_ = false; // a round of our group has shown it
  doubts doubts_;
  double disbelieved_ = 0; // what the metric shows

  history_claim reported_;
  std::uint32_t reported_clients_ = 0;
  epoch_id reported_epoch_;
  std::optional<steady_time> reported_at_;

  std::optional<state_snapshot> state_; // downloaded from a member
  steady_time state_used_;
  std::vector<waiting_reader> readers_; // bounded by waiting_max
  state_sync sync_;
  state_request request_;
  digest fetched_branch_;        // of the history that the current download is for
  int ties_ = 0;                 // votes in sequence in which no state was offered by most
  steady_time uncompared_until_; // offers are not compared
  bool own_statistics_ = false;  // peers of an epoch share the parameters, and not all of a state
};

} // namespace waggle
