#include "actors/commands/commands.hpp"
namespace waggle { command swarm_command() { return {"swarm","","",{"peer"},{},[](const run_options&){return 1;}}; } }
