#include "tests/support/fault_port.hpp"

#include <atomic>
#include <csignal>
#include <map>

#include <unistd.h>

namespace waggle::testing {

using moment = fault_point::moment;

fault_point parse_fault_point(const std::string& text) {
  static const std::map<std::string, moment> names{{"sent", moment::sent},
                                                   {"received", moment::received},
                                                   {"result", moment::result},
                                                   {"prepared", moment::prepared},
                                                   {"committed", moment::committed}};
  auto colon = text.find(':');
  return {names.at(text.substr(0, colon)), std::stoull(text.substr(colon + 1))};
}

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

} // namespace waggle::testing
