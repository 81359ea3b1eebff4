#include "runtime/cli/fault_port.hpp"

#include <atomic>
#include <csignal>

#include <unistd.h>

namespace waggle {

using moment = fault_point::moment;

void fault_port::reach(moment now) {
  if (now == where_.when && ++reached_ == where_.count)
    strike_();
}

void fault_port::send(const peer_record& to, wire::event what, payload body) {
  const auto* part = std::get_if<wire::part>(&what);
  bool contribution = part != nullptr && part->kind == wire::part_kind::contribution;
  bool result = part != nullptr && part->kind == wire::part_kind::result;
  if (std::holds_alternative<wire::round_prepared>(what))
    reach(moment::prepared);
  port_->send(to, std::move(what), std::move(body));
  if (contribution)
    reach(moment::sent);
  if (result)
    reach(moment::result);
}

void fault_port::count_part() {
  port_->count_part();
  reach(moment::received);
}

void fault_port::finished(round_finished how) {
  if (how.report.outcome != round_outcome::failed)
    reach(moment::committed);
  port_->finished(std::move(how));
}

std::function<std::shared_ptr<round_port>(std::shared_ptr<round_port>)>
break_in_round(std::uint64_t round, fault_point where, int signal) {
  struct progress {
    std::atomic<std::uint64_t> begun{0};
    std::atomic<bool> broken{false};
  };
  auto so_far = std::make_shared<progress>();
  return [=](std::shared_ptr<round_port> port) -> std::shared_ptr<round_port> {
    if (++so_far->begun < round)
      return port;
    return std::make_shared<fault_port>(std::move(port), where, [so_far, signal] {
      if (!so_far->broken.exchange(true))
        ::kill(::getpid(), signal);
    });
  };
}

} // namespace waggle
