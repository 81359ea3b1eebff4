#include "runtime/watch/comparable_passes.hpp"

#include <algorithm>
#include <vector>

namespace waggle {

namespace {

/// The median without one element that equals `value`; 0: there is no other. `sorted` has it.
double median_of_others(const std::vector<double>& sorted, double value) {
  auto place = static_cast<std::size_t>(std::lower_bound(sorted.begin(), sorted.end(), value)
                                        - sorted.begin());
  auto count = sorted.size() - 1;
  auto at = [&](std::size_t k) { return sorted[k < place ? k : k + 1]; };
  if (count == 0)
    return 0;
  return count % 2 == 1 ? at(count / 2) : (at(count / 2 - 1) + at(count / 2)) / 2;
}

std::vector<double> sorted(const std::map<peer_id, reported_pass>& of,
                           double reported_pass::*field) {
  std::vector<double> out;
  for (const auto& [peer, pass] : of)
    out.push_back(pass.*field);
  std::sort(out.begin(), out.end());
  return out;
}

} // namespace

std::map<peer_id, double> comparable_passes(const std::map<peer_id, reported_pass>& of,
                                            bool by_samples) {
  auto seconds = sorted(of, &reported_pass::seconds);
  auto rates = sorted(of, &reported_pass::samples_per_second);
  std::map<peer_id, double> out;
  for (const auto& [peer, pass] : of) {
    auto usual = median_of_others(seconds, pass.seconds);
    auto rate = median_of_others(rates, pass.samples_per_second);
    bool comparable = by_samples && usual > 0 && pass.samples_per_second > 0;
    out[peer] = comparable ? std::clamp(usual * rate / pass.samples_per_second,
                                        std::min(usual, pass.seconds), pass.seconds)
                           : pass.seconds;
  }
  return out;
}

} // namespace waggle
