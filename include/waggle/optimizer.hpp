#pragma once

// waggle::optimizer makes a LibTorch training loop a peer of a run. Includes LibTorch. Link
// waggle::trainer.

#include "trainer/optimizer.hpp"
