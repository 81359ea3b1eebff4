#include "runtime/training/keeping_up.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>

namespace waggle {

namespace {

/// "12.3": with `digits` digits after the point.
std::string number(double value, int digits) {
  char text[40];
  std::snprintf(text, sizeof text, "%.*f", digits, value);
  return text;
}

std::string megabytes(double bytes, int digits = 1) {
  return number(bytes / 1e6, digits) + " MB";
}

/// The seconds that the whole state takes at this bandwidth; 0: not known.
double whole_seconds(const slow_download& what) {
  if (what.received_bytes == 0 || what.state_bytes == 0)
    return 0;
  return what.seconds * static_cast<double>(what.state_bytes)
         / static_cast<double>(what.received_bytes);
}

} // namespace

std::uint64_t sufficient_target_batch(const slow_download& what) {
  auto seconds = whole_seconds(what);
  if (seconds == 0 || what.epoch_seconds <= 0 || what.kept_bytes_max == 0)
    return 0;
  auto updates = seconds / what.epoch_seconds * static_cast<double>(what.update_bytes);
  auto factor = 1.25 * updates / static_cast<double>(what.kept_bytes_max);
  return static_cast<std::uint64_t>(
    std::ceil(std::max(factor, 1.0) * static_cast<double>(what.target_batch_size)));
}

std::string cannot_keep_up(const slow_download& what) {
  auto received = static_cast<double>(what.received_bytes);
  auto text = "this peer cannot keep up with the run: after " + number(what.seconds, 0)
              + " s it has " + megabytes(received);
  if (what.state_bytes > 0)
    text += " of a state of " + megabytes(static_cast<double>(what.state_bytes));
  if (what.seconds > 0)
    text += " (" + megabytes(received / what.seconds, 2) + "/s)";
  text += "; an epoch takes the others " + number(what.epoch_seconds, 2) + " s and brings "
          + megabytes(static_cast<double>(what.update_bytes)) + " of updates, of which "
          + megabytes(static_cast<double>(what.kept_bytes_max), 0) + " are kept";
  if (auto target = sufficient_target_batch(what); target > 0)
    text +=
      ". A target batch size of " + std::to_string(target) + " or a faster link would be enough";
  return text;
}

} // namespace waggle
