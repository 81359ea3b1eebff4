#pragma once

#include "runtime/config/run_options.hpp"

namespace waggle {

/// `waggle bench loop`: the plain loop alone. Returns the exit code.
int bench_loop(const run_options& options);
/// `waggle bench loss`: the loss of a checkpoint. Returns the exit code.
int bench_loss(const run_options& options);

} // namespace waggle
