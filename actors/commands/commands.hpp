#pragma once

// The commands that need no LibTorch.

#include "actors/commands/command_line.hpp"

namespace waggle {

command node_command();
command average_command();
command id_command();
command config_command();
command status_command();
command swarm_command();

/// All of the above.
std::vector<command> common_commands();

} // namespace waggle
