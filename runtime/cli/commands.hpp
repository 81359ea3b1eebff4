#pragma once

// The commands that run no actors in their own process.

#include "runtime/cli/command_line.hpp"

namespace waggle {

command config_command();
command id_command();
command status_command();
command swarm_command();

} // namespace waggle
