#include "actors/loop/swarm.hpp"

#include "actors/loop/swarm_session.hpp"

namespace waggle {

swarm_status swarm::status() const {
  return session_->status_now();
}

result<swarm> join(const swarm_options& options) {
  auto session = swarm_session::prepare(options);
  if (!session)
    return session.error();
  return swarm{std::move(*session)};
}

} // namespace waggle
