#pragma once

// A swarm in a unit test: complete peers in one thread, on virtual time and a network in memory.
// Needs no test framework. Link waggle::simulation.

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "waggle/averager.hpp"
#include "waggle/node.hpp"

namespace waggle {

/// Peers like those of waggle/node.hpp. Nothing happens outside its functions; the same seed and
/// the same calls give the same results, however busy the machine is. Use it from one thread.
/// Throws std::invalid_argument for a peer that does not exist or has ended.
class simulation {
public:
  using index = std::size_t; // of a peer, in the order of their start

  struct options {
    std::uint64_t seed = 1;
    /// How long a message takes, drawn anew for each.
    std::chrono::milliseconds delay_min{1};
    std::chrono::milliseconds delay_max{20};
  };
  simulation();
  explicit simulation(const options& o);
  ~simulation();
  simulation(const simulation&) = delete;
  simulation& operator=(const simulation&) = delete;

  /// Starts a peer that joins through the peers `through`. Addresses, folder and environment in `o`
  /// do not count. Throws std::invalid_argument with the sentence that node::start would return.
  index start(const node_options& o, const std::vector<index>& through = {});
  /// Of the n-th peer, also after its end; the seed and n determine it.
  [[nodiscard]] const peer_id& id(index who) const;
  /// Kills the peer: others see its links break, or (`silently`) nothing at all.
  void crash(index who, bool silently = false);
  /// The peer leaves in good order.
  void leave(index who);
  /// Stops the peer as SIGSTOP does, until `thaw`.
  void freeze(index who);
  void thaw(index who);

  void run_for(std::chrono::nanoseconds time);
  /// Returns false if `what` did not become true within `limit` of virtual time.
  bool run_until(const std::function<bool()>& what, std::chrono::nanoseconds limit);
  [[nodiscard]] std::chrono::nanoseconds now() const; // since the start

  using averaged =
    std::function<void(const result<average_report>&, const std::vector<float>& mean)>;
  /// Begins what averager::average does. `then` is called during a later run, with the mean,
  /// or with the failure and `values`.
  void average(index who, const std::string& averager, std::vector<float> values,
               const average_options& how, averaged then);
  /// As dht::put and dht::get; time passes meanwhile.
  status put(index who, const std::string& key, const std::string& subkey, const std::string& value,
             std::chrono::milliseconds lifetime);
  result<std::map<std::string, std::string>> get(index who, const std::string& key);

private:
  struct impl;
  std::unique_ptr<impl> impl_;
};

} // namespace waggle
