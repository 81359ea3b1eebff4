#pragma once

#include "runtime/config/run_options.hpp"

namespace waggle {

/// `waggle bench train --strategy all`: trains with each strategy in turn, with --peers processes
/// on this machine, and prints one table (strategy_comparison.hpp). Prints its progress on standard
/// error. Ends early, with what it has measured, if a signal asks it to (told_to_end). Returns the
/// exit code. REQUIRES: this program is waggle-trainer, and the process has one thread.
int compare_strategies(const run_options& options);

} // namespace waggle
