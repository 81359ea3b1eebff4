#pragma once

#include <memory>
#include <set>
#include <vector>

#include <caf/all.hpp>

#include "actors/node/node.hpp"

namespace waggle {

/// To itself: the next stage of the shutdown.
struct continue_shutdown {
  int stage = 0;
};
/// To itself: start a metrics exporter or state donor in place of the one that died.
struct restart_leaf {
  bool exporter = false; // else the donor
};

using node_supervisor_base =
  wired_node_actor::extend<caf::reacts_to<continue_shutdown>, caf::reacts_to<restart_leaf>>::base;

/// Supervises a peer's actors. The metrics exporter and the state donor hold no state that is lost
/// with them, so they are started again. If any other actor dies, the peer shuts down and reports
/// the reason. Shutdown order: the trainer (which writes a checkpoint), the goodbyes, the links,
/// then all other actors and the peer's metrics. A shut_down is answered once they have ended.
class node_supervisor final : public node_supervisor_base {
public:
  node_supervisor(caf::actor_config& cfg, node_context ctx, node_config config, node_parts parts,
                  std::shared_ptr<net::transport> transport, std::shared_ptr<status_board> board,
                  averaging_factory averages);

  const char* name() const override { return "node"; }
  void on_exit() override;

protected:
  behavior_type make_behavior() override;

private:
  caf::result<training_status> shut_down_all(const shut_down& msg);
  caf::result<averaging_actors> add(const add_averager& msg);
  caf::result<caf::unit_t> end_one(const end_averager& msg);
  void on_down(const caf::down_msg& down);
  void restart(bool exporter);
  void begin_shutdown();
  void advance(int stage);
  void end();
  void answer();

  const node_context ctx_;
  const node_config config_;
  const std::shared_ptr<net::transport> transport_;
  const std::shared_ptr<status_board> board_;
  node_parts parts_;
  averaging_factory averages_;
  bool stopping_ = false;
  std::set<caf::actor_addr> ending_; // actors that `end` has told to end, and that have not yet
  failure ended_because_;            // its code is not none: an actor died that the peer needs
  training_status last_status_;
  std::vector<caf::typed_response_promise<training_status>> waiting_;
  unsigned restarts_ = 0;
};

} // namespace waggle
