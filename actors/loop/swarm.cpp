#include "actors/loop/swarm.hpp"

#include "actors/loop/swarm_session.hpp"

namespace waggle {

swarm_status swarm::status() const {
  return session_->status_now();
}

std::string swarm::address() const {
  auto where = session_->address();
  return where ? to_string(*where) : std::string{};
}

waggle::status swarm::wait_until_ready(std::chrono::milliseconds timeout) const {
  return session_->wait_until_ready(timeout);
}

result<swarm> join(const swarm_options& options) {
  auto session = swarm_session::prepare(options);
  if (!session)
    return session.error();
  return swarm{std::move(*session)};
}

} // namespace waggle
