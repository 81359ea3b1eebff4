#pragma once

#include <memory>

#include <caf/all.hpp>

#include "actors/actors.hpp"
#include "actors/node_context.hpp"
#include "runtime/watch/event_log.hpp"

namespace waggle {

/// To itself: write what is new.
struct write_events {};

using event_writer_actor = caf::typed_actor<caf::reacts_to<write_events>>;

/// Writes this peer's events to disk each second, on a thread of its own: a slow disk delays
/// nobody. If the disk is full, the log ends with a notice, and the peer goes on.
class event_writer final : public event_writer_actor::base {
public:
  event_writer(caf::actor_config& cfg, node_context ctx, std::shared_ptr<disk> files,
               event_log_config config);

  const char* name() const override { return "event-writer"; }

protected:
  behavior_type make_behavior() override;

private:
  void write();

  const node_context ctx_;
  event_log log_;
};

} // namespace waggle
