#pragma once

// A training loop as a peer of a run, without LibTorch: waggle::join, waggle::swarm_options and
// waggle::swarm. The optimizer that trains is in waggle/optimizer.hpp. Link waggle::loop.

#include "actors/loop/swarm.hpp"
