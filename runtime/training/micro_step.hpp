#pragma once

#include <cstdint>

namespace waggle {

/// The result of one pass over a micro-batch.
struct micro_step {
  double loss = 0;           // mean over the micro-batch
  std::uint64_t samples = 0; // micro-batch size
  bool finite = true;        // false: loss or gradient was NaN or infinite; nothing was accumulated
};

} // namespace waggle
