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

/// What a trainer knows of the round that its epoch ended with.
struct round_verdict {
  bool averaged = false;         // there is a mean
  bool excluded = false;         // the others have one, without us
  bool run_moved_on = false;     // the run is at a later epoch than ours
  std::uint64_t own_samples = 0; // that we gave to it
};

enum class epoch_end : std::uint8_t {
  apply_mean,
  apply_own,  // this epoch's own mean gradient (INV-6)
  left_out,   // our samples are dropped, the state of those who went on is ours
  accumulate, // no end yet: we only tagged along, there is no gradient to fall back on
};

/// How an epoch ends once its round is over. Only a peer that can still hold what most others hold
/// steps with its own gradient (spec/optimizer.md §3.8).
constexpr epoch_end decide(const round_verdict& round) {
  if (round.averaged)
    return epoch_end::apply_mean;
  if (round.excluded || round.run_moved_on)
    return epoch_end::left_out;
  return round.own_samples > 0 ? epoch_end::apply_own : epoch_end::accumulate;
}

/// Where every accumulated sample went (INV-2).
struct sample_account {
  std::uint64_t pending = 0; // accumulated toward the current epoch
  std::uint64_t used = 0;    // entered an optimizer step
  std::uint64_t dropped = 0;

  void accumulate(std::uint64_t samples) { pending += samples; }
  /// Samples whose gradient is unusable, and was never added.
  void refuse(std::uint64_t samples) { dropped += samples; }
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
