#pragma once

#include <optional>
#include <vector>

#include <caf/all.hpp>

#include "actors/actors.hpp"
#include "actors/node_context.hpp"
#include "actors/training/request_state.hpp"
#include "actors/training/training_config.hpp"
#include "runtime/progress/client_group.hpp"
#include "runtime/progress/doubts.hpp"
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
/// and reduce there; runtime/progress/client_group.hpp decides when. Clients do not receive each
/// other's progress, so this actor calls the round when their samples reach the target. It has no
/// state of the run, but passes one on: it answers requests with the state that most members offer,
/// which it downloads from one of them.
class group_helper final : public group_helper_base {
public:
  group_helper(caf::actor_config& cfg, node_context ctx, help_config config, helper_peers peers);

  const char* name() const override { return "group-helper"; }
  void on_exit() override;

protected:
  behavior_type make_behavior() override;

private:
  struct waiting_reader {
    get_state_snapshot wanted;
    caf::typed_response_promise<state_snapshot> promise;
  };
  struct report {
    history_claim claim;
    epoch_id epoch;
    std::uint32_t clients = 0;
    bool operator==(const report&) const = default;
  };

  [[nodiscard]] steady_time now() const { return clock().now(); }

  void react();
  void enter(const history_choice& choice);
  void leave(const std::string& why);
  void begin_round();
  void on_round(const group_round& round);
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

  swarm_progress view_;
  client_group group_;
  std::uint64_t elements_ = 0; // group_view::elements
  doubts doubts_;
  double disbelieved_ = 0; // what the metric shows

  report reported_;
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
