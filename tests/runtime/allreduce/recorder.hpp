#pragma once

#include <deque>
#include <optional>
#include <vector>

#include "tests/support/fake_signatures.hpp"

namespace waggle::testing {

/// Records the messages of the round, and how it ended.
class recorder final : public fake_signing_port {
public:
  using fake_signing_port::fake_signing_port;
  void send(const peer_record& to, wire::event what, payload body) override {
    sent.push_back({to.id, std::move(what), std::move(body)});
  }
  [[nodiscard]] std::uint64_t body_bytes_written(const peer_id&) const override { return written; }
  void count_refused(ec why) override { refused.push_back(why); }
  void log(const std::string&) override {}
  void finished(round_finished how) override { end = std::move(how); }

  struct message {
    peer_id to;
    wire::event what;
    payload body;
  };
  std::uint64_t written = 0; // on every link
  std::deque<message> sent;
  std::vector<ec> refused;
  std::optional<round_finished> end;
};

} // namespace waggle::testing
