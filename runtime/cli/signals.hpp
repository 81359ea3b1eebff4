#pragma once

#include <optional>

#include "runtime/core/time.hpp"

namespace waggle {

/// Blocks INT, TERM, HUP, USR1, USR2 and QUIT in all threads, so that wait_for_signal receives
/// them in the thread that calls this. One that is ignored when this process starts stays ignored,
/// as nohup wants of HUP. Call it first in a command that waits for signals, before it starts a
/// thread.
void hold_signals();

/// A process that writes to a closed connection or pipe gets an error, and is not ended. Call it
/// first in main.
void ignore_broken_pipes();

/// Waits for a blocked signal. Nothing: none arrived in time.
std::optional<int> wait_for_signal(milliseconds timeout);

/// What to do about a signal. A terminal that closes sends HUP, and Slurm sends USR1 before a job's
/// time is over: both end the process in order, as TERM does. QUIT asks what a peer does. USR2
/// switches debug lines on, and off again.
enum class signal_request { leave, show_state, switch_debug };
signal_request request_of(int signal);

/// "SIGTERM"
const char* name_of_signal(int signal);

/// For commands that have no state to show: whether a signal arrived in time that asks them to end.
bool told_to_end(milliseconds timeout);

} // namespace waggle
