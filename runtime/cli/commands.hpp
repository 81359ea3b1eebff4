#pragma once

// The commands that run no actors in their own process.

#include "runtime/cli/command_line.hpp"
#include "runtime/core/result.hpp"

namespace waggle {

/// What `waggle train` says about options on this machine. Empty: there is no LibTorch to ask.
using training_check = std::function<status(const run_options&)>;
command config_command(training_check check);
command id_command();
command status_command();
command swarm_command();

} // namespace waggle
