#include "runtime/cli/local_swarm.hpp"

#include <algorithm>
#include <csignal>
#include <string_view>

#include "runtime/cli/signals.hpp"
#include "runtime/core/try.hpp"

namespace waggle {

namespace {

using clock = std::chrono::steady_clock;
constexpr auto start_timeout = 60s;

failure told() {
  return {ec::cancelled, "interrupted"};
}

/// Reads the two lines by which a peer says that it listens.
bool read_start(const std::string& log, local_peer& peer) {
  constexpr std::string_view before = "listening on ";
  auto at = log.find(before);
  auto line = log.find("\nwaggle train ");
  if (at == std::string::npos || line == std::string::npos
      || log.find('\n', line + 1) == std::string::npos)
    return false;
  at += before.size();
  if (auto where = parse_endpoint(log.substr(at, log.find('\n', at) - at)))
    peer.where = *where;
  peer.join_line = log.substr(line + 1, log.find('\n', line + 1) - line - 1);
  return true;
}

} // namespace

status local_swarm::start(const std::vector<std::string>& arguments,
                          const std::filesystem::path& log) {
  WAGGLE_TRY(process, child_process::start(arguments, log));
  peers_.push_back({std::move(*process), {}, {}});
  return await_start(peers_.back());
}

status local_swarm::await_start(local_peer& peer) {
  for (auto until = clock::now() + start_timeout; clock::now() < until;) {
    bool ended = peer.ended().has_value(); // before the log is read, so that it is complete
    if (read_start(content_of(peer.log()), peer))
      return done{};
    if (ended)
      return peer.ended_early();
    if (told_to_end(20ms))
      return told();
  }
  return failure{ec::timeout, "a peer did not start within a minute; see " + peer.log().string()};
}

status local_swarm::stop(milliseconds patience, milliseconds hurried) {
  for (auto& peer : peers_)
    peer.signal(SIGTERM);
  auto over = [](local_peer& peer) { return peer.ended().has_value(); };
  status how = failure{ec::timeout, "a peer did not end within " + std::to_string(patience.count())
                                      + " ms after SIGTERM"};
  auto until = clock::now() + patience;
  while (!std::all_of(peers_.begin(), peers_.end(), over)) {
    if (told_to_end(20ms)) {
      how = told();
      until = std::min(until, clock::now() + hurried);
    }
    if (clock::now() < until)
      continue;
    for (auto& peer : peers_)
      peer.signal(SIGKILL);
    return how;
  }
  return done{};
}

} // namespace waggle
