#pragma once

#include <cstdint>

#include "runtime/core/ids.hpp"

namespace waggle {

/// What a trainer sees of itself and of the run when it decides what to do next.
struct training_situation {
  epoch_id own;
  std::uint64_t max_epochs = 0; // 0: no end
  epoch_id global;
  bool parameters_differ = false;   // most peers at our epoch hold other parameters
  bool donors = false;              // somebody can give us the run's state
  bool target_reached = false;      // the swarm has its target batch
  std::uint32_t peers_at_epoch = 1; // ourselves included
  std::uint64_t own_samples = 0;    // accumulated here toward `own`
};

enum class next_step : std::uint8_t {
  accumulate, // one more micro-step
  average,    // a round with the others, then one optimizer step
  step_alone, // nobody else is at this epoch: the optimizer step needs no round
  sync,       // download the run's state: what is accumulated here belongs to an epoch that is over
  finish,     // max_epochs are done
};

/// The rule of the synchronous collaborative strategy (spec/optimizer.md §2.6, §3.11), pure.
///
/// A peer that is behind never guesses its way forward: parameters have to be equal on all peers of
/// an epoch, so it takes the state of one that is there.
constexpr next_step decide(const training_situation& now) {
  bool behind = now.global > now.own;
  if ((behind || now.parameters_differ) && now.donors)
    return next_step::sync;
  if (now.max_epochs != 0 && now.own.value() >= now.max_epochs)
    return next_step::finish;
  if (behind || !now.target_reached)
    return next_step::accumulate;
  if (now.peers_at_epoch > 1)
    return next_step::average; // without samples, too: the others need not wait for us
  return now.own_samples > 0 ? next_step::step_alone : next_step::accumulate;
}

/// Where every accumulated sample went (INV-2).
struct sample_account {
  std::uint64_t pending = 0; // accumulated toward the current epoch
  std::uint64_t used = 0;    // entered an optimizer step
  std::uint64_t dropped = 0;

  void accumulate(std::uint64_t samples) { pending += samples; }
  std::uint64_t use() { return move_to(used); }
  std::uint64_t drop() { return move_to(dropped); }

private:
  std::uint64_t move_to(std::uint64_t& where) {
    auto n = pending;
    where += n;
    pending = 0;
    return n;
  }
};

} // namespace waggle
