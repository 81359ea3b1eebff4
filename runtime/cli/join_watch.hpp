#pragma once

#include <map>
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
  explicit join_watch(const std::vector<endpoint>& initial_peers) {
    for (const auto& given : initial_peers)
      addresses_[given] = {given};
  }

  /// A link was made; null: with a peer that has no agreement.
  void linked(const std::shared_ptr<const run_agreement>& theirs);
  /// An initial peer was given by a name that has these addresses now.
  void resolved(const endpoint& given, const std::vector<endpoint>& addresses);
  void disagreed(const endpoint& where, const failure& why);

  /// The last refusal, once every initial peer has refused our options and no peer has accepted
  /// them. A name has refused when all of its addresses have; or one of them repeatedly, so that
  /// the others have had the time to answer.
  [[nodiscard]] std::optional<failure> refused_by_all() const;
  /// An agreement that was seen for the first time. Each is returned once, and only the first few.
  [[nodiscard]] std::shared_ptr<const run_agreement> take_news();

private:
  mutable std::mutex mutex_;
  std::map<endpoint, std::set<endpoint>> addresses_; // of the initial peers
  std::map<endpoint, unsigned> refusals_;            // by those addresses
  bool linked_ = false;
  std::optional<failure> refused_;
  std::set<digest> known_;
  std::vector<std::shared_ptr<const run_agreement>> news_;
};

} // namespace waggle
