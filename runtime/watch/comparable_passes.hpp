#pragma once

#include <map>

#include "runtime/core/ids.hpp"

namespace waggle {

/// What a peer reports of its passes: a claim, which can only make the peer itself look slow unless
/// most others lie, too.
struct reported_pass {
  double seconds = 0;
  double samples_per_second = 0; // waits between passes included
};

/// The seconds of passes, such that whose are longer is slower. Where an epoch is counted in
/// samples, larger passes are no slower ones: `by_samples`, a peer's passes count as at most so
/// many times those of the others as its samples per second are fewer.
std::map<peer_id, double> comparable_passes(const std::map<peer_id, reported_pass>& of,
                                            bool by_samples);

} // namespace waggle
