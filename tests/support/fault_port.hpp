#pragma once

#include <functional>
#include <memory>
#include <string>

#include "tests/support/honest_port.hpp"

namespace waggle::testing {

/// A moment within a round, counted in this peer's events: unlike a time, it lies within the round
/// on every machine.
struct fault_point {
  enum class moment : std::uint8_t {
    sent,      // its count-th contribution was given to a link
    received,  // the count-th part, a contribution or a result, was processed
    result,    // the count-th copy of a part that it reduced was given to a link
    prepared,  // it holds the whole result and is about to announce it
    committed, // it has applied the result and has not reported it yet
  };
  moment when = moment::sent;
  std::uint64_t count = 1;
};

/// sent:K, received:K, result:K, prepared:1 or committed:1. Throws for anything else.
fault_point parse_fault_point(const std::string& text);

/// Calls `strike` once, when its round reaches `where`, before anything else happens there.
class fault_port final : public honest_port {
public:
  fault_port(std::shared_ptr<round_port> port, fault_point where, std::function<void()> strike)
    : honest_port(std::move(port)), where_(where), strike_(std::move(strike)) {}

  void send(const peer_record& to, wire::event what, payload body) override;
  void count_part() override;
  void finished(round_finished how) override;

private:
  /// One more of `moment` happened.
  void reach(fault_point::moment moment);

  const fault_point where_;
  const std::function<void()> strike_;
  std::uint64_t reached_ = 0; // under the round's lock
};

/// For `node_dependencies::port_decorator`: sends `signal` to this process once, at `where`, in the
/// first of its rounds that gets that far; in its `round`-th, counted from 1, at the earliest.
std::function<std::shared_ptr<round_port>(std::shared_ptr<round_port>)>
break_in_round(std::uint64_t round, fault_point where, int signal);

} // namespace waggle::testing
