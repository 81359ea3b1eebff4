#pragma once

// Averages vectors of floats with other peers. Link waggle::actors.

#include <chrono>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "waggle/node.hpp"

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
};

/// How a round ended in which the values were averaged. Equal on all its peers, apart from
/// `seconds`.
struct average_report {
  std::vector<peer_id> contributors; // whose values are in the mean
  double weight_sum = 0;
  bool all_took_part = true; // false: it is the mean without a peer that was lost
  double seconds = 0;
};

/// One averager of a peer. Thread-safe, but one round at a time: a second one fails with
/// ec::overloaded. Keeps the peer's threads alive, but not the peer.
class vector_averager {
public:
  /// One that the peer has (node_options::averagers, or `add`). Fails with ec::bad_config.
  static result<vector_averager> of(const node& peer, const std::string& name);
  /// Adds one while the peer runs. Fails with ec::bad_config and the option, or if the peer has one
  /// of this name.
  static result<vector_averager> add(const node& peer, const averager_options& options);
  /// Ends it: a round that runs fails, other peers go on without this one, and the name is free
  /// again. Fails with ec::bad_config if it has ended.
  status end();

  /// Replaces `values` by the weighted mean over the peers that average now: the same bytes on each
  /// of them. Waits at most a second longer than `timeout`. If it fails, `values` is unchanged:
  /// ec::timeout, nobody_declared, too_few, non_finite, bad_weight, wrong_shape, shutting_down, …
  [[nodiscard]] result<average_report> average(std::span<float> values,
                                               const average_options& options = {});

private:
  vector_averager(std::shared_ptr<running_node> peer, std::string name)
    : peer_(std::move(peer)), name_(std::move(name)) {}

  std::shared_ptr<running_node> peer_;
  std::string name_;
};

} // namespace waggle
