#pragma once

#include "runtime/allreduce/round_engine.hpp"

namespace waggle::testing {

/// A member that follows the protocol; others are derived from it.
class honest_port : public round_port {
public:
  explicit honest_port(std::shared_ptr<round_port> port) : port_(std::move(port)) {}

  void send(const peer_record& to, wire::event what, payload body) override {
    port_->send(to, std::move(what), std::move(body));
  }
  [[nodiscard]] std::uint64_t body_bytes_written(const peer_id& peer) const override {
    return port_->body_bytes_written(peer);
  }
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
  void count_part() override { port_->count_part(); }
  void count_check(bool right) override { port_->count_check(right); }
  void count_refused(ec why) override { port_->count_refused(why); }
  void log(const std::string& what) override { port_->log(what); }
  void finished(round_finished how) override { port_->finished(std::move(how)); }

protected:
  const std::shared_ptr<round_port> port_;
};

} // namespace waggle::testing
