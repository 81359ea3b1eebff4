#include "actors/loop/swarm.hpp"

#include "actors/caller_thread.hpp"
#include "actors/loop/swarm_session.hpp"
#include "actors/service/peer_control.hpp"

namespace waggle {

swarm_status swarm::status() const {
  return session_->status_now();
}

std::string swarm::address() const {
  auto where = session_->address();
  return where ? to_string(*where) : std::string{};
}

std::vector<std::string> swarm::addresses() const {
  std::vector<std::string> out;
  if (session_->address())
    for (const auto& each : session_->addresses())
      out.push_back(to_string(each));
  return out;
}

waggle::status swarm::wait_until_ready(std::chrono::milliseconds timeout) const {
  return session_->wait_until_ready(timeout);
}

waggle::status swarm::notice(std::chrono::milliseconds within) const {
  return session_->notice(within);
}

result<control_actor> control_of(const swarm& peer) {
  auto& session = peer.session();
  const auto* running = session.node();
  if (running == nullptr)
    return failure{ec::not_ready, "no loop or optimizer runs with this swarm"};
  if (running->board->has_ended())
    return failure{ec::shutting_down, "this peer has left the run"};
  caller_thread here;
  return control_actor{session.system().spawn<peer_control>(*running, nullptr)};
}

result<swarm> join(const swarm_options& options) {
  auto session = swarm_session::prepare(options);
  if (!session)
    return in_members(session.error());
  return swarm{std::move(*session)};
}

} // namespace waggle
