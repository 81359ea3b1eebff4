#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <vector>

#include "runtime/agreement/run_agreement.hpp"
#include "runtime/core/endpoint.hpp"

namespace waggle {

/// What a peer learns from handshakes about the run that it joins. Thread-safe: the I/O thread
/// writes, the main thread reads.
class join_watch {
public:
  explicit join_watch(std::vector<endpoint> initial_peers)
    : silent_(initial_peers.begin(), initial_peers.end()) {}

  /// A link was made; null: with a peer that has no agreement.
  void linked(const std::shared_ptr<const run_agreement>& theirs);
  /// The peer at this address refused our options.
  void disagreed(const endpoint& where, const failure& why);

  /// The last refusal, once every initial peer has refused our options and no peer has accepted
  /// them.
  [[nodiscard]] std::optional<failure> refused_by_all() const;
  /// An agreement that was seen for the first time. Each is returned once, and only the first few.
  [[nodiscard]] std::shared_ptr<const run_agreement> take_news();

private:
  mutable std::mutex mutex_;
  std::set<endpoint> silent_; // initial peers that did not refuse
  bool linked_ = false;
  std::optional<failure> refused_;
  std::set<digest> known_;
  std::vector<std::shared_ptr<const run_agreement>> news_;
};

} // namespace waggle
