#pragma once

// Event logs as peers write them, with times of the test.

#include <cstdint>
#include <sstream>
#include <string>
#include <vector>

#include "runtime/watch/events.hpp"
#include "runtime/watch/timeline.hpp"
#include "tests/support/ids.hpp"

namespace waggle::event_logs {

inline constexpr std::int64_t t0 = 1'700'000'000'000;

inline round_id round_of(int n) {
  round_id id;
  id.bytes[0] = std::byte(n);
  return id;
}

/// The log of a peer whose clock is `ahead` milliseconds ahead.
class log_writer {
public:
  log_writer(int n, std::int64_t ahead) : self_(id_of(n)), ahead_(ahead) {}

  void add(std::int64_t t, const watch::event& what) {
    text += "{\"seq\":" + std::to_string(++seq_) + ","
            + watch::fields_of(what, self_, swarm_time_from((t0 + t + ahead_) * 1'000'000)) + "}\n";
  }
  void round(std::int64_t end, int id, const std::string& outcome = "complete") {
    watch::round_ended ended{.round = round_of(id),
                             .outcome = outcome,
                             .began = t0 + end - 10 + ahead_,
                             .duration_ms = 10};
    add(end, ended);
  }

  std::string text;

private:
  peer_id self_;
  std::int64_t ahead_;
  std::uint64_t seq_ = 0;
};

inline timeline of(const std::vector<std::string>& logs) {
  timeline all;
  for (const auto& log : logs) {
    std::istringstream in{log};
    all.read(in);
  }
  return all;
}

} // namespace waggle::event_logs
