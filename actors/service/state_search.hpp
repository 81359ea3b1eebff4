#pragma once

#include <caf/all.hpp>

#include "actors/node/node.hpp"
#include "waggle/state.hpp"

namespace waggle {

/// Query for a state that a state_publisher of another peer has. Waits until there is one; fails at
/// once with ec::not_owner if all that have it share it with nobody.
struct state_query {
  std::string name;
  std::uint64_t version_min = 0;
  std::uint64_t bytes_max = 1ULL << 30U;
  bool equal_on_all = false; // donors that offer other bytes than most are not believed
  milliseconds timeout{60'000};
};
/// To itself: ask the DHT again who has it.
struct look_again {};

using state_search_actor = caf::typed_actor<caf::replies_to<state_query>::with<fetched_version>>;
using state_search_base = state_search_actor::extend<caf::reacts_to<look_again>>::base;

/// Finds and downloads one state. Ends itself after its answer.
class state_search final : public state_search_base {
public:
  state_search(caf::actor_config& cfg, const started_node& node);

  const char* name() const override { return "state-search"; }
  void on_exit() override;

protected:
  behavior_type make_behavior() override;

private:
  void look();
  void fetch(const found_records& found);
  void look_later(const failure& why);
  void end(result<fetched_version> with);
  [[nodiscard]] milliseconds left() const;

  const node_context ctx_;
  dht_router_actor dht_;
  wired_switchboard_actor links_;
  node_actor node_;
  state_query wanted_;
  steady_time until_;
  milliseconds pause_;
  caf::typed_response_promise<fetched_version> promise_;
};

} // namespace waggle
