#pragma once

namespace waggle {

/// A moving average over about the last five values; 0: there was none.
inline void smooth(double& average, double value) {
  average = average == 0 ? value : 0.8 * average + 0.2 * value;
}

} // namespace waggle
