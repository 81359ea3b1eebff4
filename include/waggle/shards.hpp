#pragma once

// waggle::shards deals the samples of a data set to the loops of a run: each enters one update a
// pass. Link waggle::loop.

#include "actors/loop/shards.hpp"
