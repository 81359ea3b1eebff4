#pragma once

#include "runtime/core/time.hpp"

namespace waggle {

/// Blocks SIGINT and SIGTERM in all threads, so that wait_for_signal receives them. Call it first
/// in main, before a second thread exists.
void hold_signals();

/// Waits for a blocked signal. False: none arrived in time.
bool wait_for_signal(milliseconds timeout);

} // namespace waggle
