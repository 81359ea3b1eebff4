#pragma once

#include <functional>
#include <map>
#include <string>

#include <caf/all.hpp>

#include "actors/node/node.hpp"
#include "runtime/core/random.hpp"

namespace waggle {

/// Command: give this state to peers that ask, in place of the one of the same name.
struct publish_state {
  std::string name;
  std::uint64_t version = 0;
  payload bytes;
  std::function<result<payload>()> make{}; // not empty: makes the bytes for each peer that asks
  bool shares = true;                      // false: peers are told that they get it elsewhere
  double priority = 0; // of more donors, those with a higher one are asked first
  milliseconds declare_period{120'000};
};
/// To itself: it may be time to tell the DHT again who has these states, and where.
struct announce_states {};
/// To itself: start another donor.
struct begin_to_serve {};

using state_publisher_actor =
  snapshot_source_actor::extend<caf::replies_to<publish_state>::with<caf::unit_t>>;
using state_publisher_base = state_publisher_actor::extend<caf::reacts_to<announce_states>,
                                                           caf::reacts_to<begin_to_serve>>::base;

/// Who has a state, as records say.
struct state_donors {
  std::vector<peer_record> all; // by priority, the highest first; of equal ones in random order
  std::size_t refusing = 0;     // peers that have it, and share it with nobody
};

/// The states of a service (waggle/state.hpp) and of its averagers: the source of a state_donor,
/// which ends with it and is started again if it dies before. It ends with its node. Donors are
/// found by records that they own, which contain their addresses. Its thread makes the states.
class state_publisher final : public state_publisher_base {
public:
  state_publisher(caf::actor_config& cfg, const started_node& node);

  const char* name() const override { return "state-publisher"; }
  void on_exit() override;

  /// What stands for a name in requests (get_state_snapshot::branch), and in the DHT.
  static digest branch_of(const std::string& name);
  static std::string key_of(const std::string& name) { return "waggle.state/" + name; }
  /// The donors of `version_min` or later, but for `self`, that these records name.
  static state_donors donors_in(const found_records& found, std::uint64_t version_min,
                                const peer_id& self, random_source random);

protected:
  behavior_type make_behavior() override;

private:
  struct published {
    publish_state what;
    state_snapshot made; // of its bytes
    steady_time declared{};
  };

  caf::result<state_snapshot> snapshot(const get_state_snapshot& wanted) const;
  result<state_snapshot> make(const publish_state& what) const;
  void announce(published& what);
  void serve_states();

  const node_context ctx_;
  node_actor node_;
  wired_switchboard_actor links_;
  dht_router_actor dht_;
  state_donor_actor donor_; // null: it has died
  unsigned restarts_ = 0;
  std::map<digest, published> states_; // by branch
  std::vector<endpoint> addresses_;    // that the DHT was told
};

} // namespace waggle
