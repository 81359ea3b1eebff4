#pragma once

// A step of an averager: what it is asked, its handle, and how it ended. Link waggle::actors.

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "runtime/allreduce/step_stage.hpp"
#include "runtime/core/ids.hpp"
#include "runtime/core/result.hpp"
#include "runtime/core/time.hpp"

namespace waggle {

struct average_options {
  double weight = 1; // of this peer's values; finite, not negative
  /// Of everything: finding a group, averaging, and trying again.
  std::chrono::milliseconds timeout{60'000};
  /// The group begins with so many peers. 0: when it is full, or after its matchmaking time.
  std::uint32_t expected_peers = 0;
  /// Begins at once with the peers of the last round, if there are as many as are expected. With 0
  /// these are all that are left, and peers that have come since.
  bool keep_group = false;
  /// Given to all peers of the group (average_report::gathered); at most 1,024 bytes.
  std::string gather{};
  /// The round begins then, by the clock of the group's leader; peers look for a group until then.
  /// Who is late begins late, and nobody early.
  std::optional<swarm_time> scheduled_time{};
  bool allow_retries = true; // up to averager_options::retries
  /// The round does not begin before step_control::allow_allreduce.
  bool require_trigger = false;
};

/// How a round ended in which the values were averaged. Equal on all its peers, apart from
/// `seconds`.
struct average_report {
  std::vector<peer_id> contributors; // whose values are in the mean
  double weight_sum = 0;
  bool all_took_part = true; // false: it is the mean without a peer that was lost
  double seconds = 0;
  std::map<peer_id, std::string> gathered{}; // of all peers of the group, also those lost later
};

class running_step; // actors/service/running_step.hpp

/// A step that runs. Its end cancels the step. Thread-safe, except for moves.
class step_control {
public:
  explicit step_control(std::shared_ptr<running_step> step);
  ~step_control();
  step_control(step_control&&) noexcept = default;
  step_control& operator=(step_control&&) noexcept = default;

  [[nodiscard]] step_stage stage() const;
  /// Reads the tensors: from now on the round may begin. Without `require_trigger`, or the second
  /// time, nothing happens. Fails with ec::non_finite, and the step goes on waiting.
  status allow_allreduce();
  /// Unless the round has ended, the step fails with ec::cancelled; the group goes on without this
  /// peer.
  void cancel();
  /// Waits until the step has ended, and writes the mean to the tensors, the first time. Fails with
  /// the reason (see averager::step), or with ec::not_ready after `timeout`; the step then goes on.
  [[nodiscard]] waggle::result<average_report>
  result(std::chrono::milliseconds timeout = std::chrono::hours{24});

private:
  std::shared_ptr<running_step> step_;
};

} // namespace waggle
