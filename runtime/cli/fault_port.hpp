#pragma once

#include <functional>
#include <memory>

#include "runtime/allreduce/round_engine.hpp"
#include "runtime/config/fault_point.hpp"

namespace waggle {

/// A round's port that forwards all calls, and calls `strike` once, when its round reaches `where`,
/// before anything else happens there. For tests that break a peer within a round.
///
/// Called with the round's lock held, like every port.
class fault_port final : public round_port {
public:
  fault_port(std::shared_ptr<round_port> port, fault_point where, std::function<void()> strike)
    : port_(std::move(port)), where_(where), strike_(std::move(strike)) {}

  void send(const peer_record& to, wire::event what, payload body) override;
  bool reduce(const reduce_part& what) override { return port_->reduce(what); }
  [[nodiscard]] digest secret(const round_id& round, std::uint32_t view) override {
    return port_->secret(round, view);
  }
  [[nodiscard]] signature sign(std::string_view statement) override {
    return port_->sign(statement);
  }
  [[nodiscard]] bool verify(const peer_record& by, std::string_view statement,
                            const signature& its) override {
    return port_->verify(by, statement, its);
  }
  void count_part() override;
  void count_check(bool right) override { port_->count_check(right); }
  void count_refused(ec why) override { port_->count_refused(why); }
  [[nodiscard]] std::uint64_t body_bytes_written(const peer_id& peer) const override {
    return port_->body_bytes_written(peer);
  }
  void log(const std::string& what) override { port_->log(what); }
  void finished(round_finished how) override;

private:
  /// One more of `moment` happened.
  void reach(fault_point::moment moment);

  const std::shared_ptr<round_port> port_;
  const fault_point where_;
  const std::function<void()> strike_;
  std::uint64_t reached_ = 0; // under the round's lock
};

/// For `node_dependencies::port_decorator`: sends `signal` to this process once, at `where`, in the
/// first of its rounds that gets that far; in its `round`-th, counted from 1, at the earliest.
std::function<std::shared_ptr<round_port>(std::shared_ptr<round_port>)>
break_in_round(std::uint64_t round, fault_point where, int signal);

} // namespace waggle
