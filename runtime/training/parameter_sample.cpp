#include "runtime/training/parameter_sample.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <span>
#include <tuple>

#include "runtime/core/float_vector.hpp"
#include "runtime/core/random.hpp"

namespace waggle {

namespace {

/// Values of a tensor that is copied although the window has only some of them: 64 MiB.
constexpr std::uint64_t copied_values_max = 16'777'216;

/// Calls `take` with the values of the epoch's window, in order. False: the window lies in a tensor
/// that is too large to copy.
bool for_window(const learner& model, epoch_id epoch, std::size_t values_max,
                const std::function<void(std::span<const float>)>& take) {
  auto count = model.parameter_count();
  auto windows = std::max<std::uint64_t>((count + values_max - 1) / values_max, 1);
  auto begin = static_cast<std::uint64_t>(epoch.value() % windows) * values_max;
  auto end = std::min<std::uint64_t>(begin + values_max, count);
  const auto& table = model.tensors();
  float_vector copy;
  for (std::size_t i = 0; i < table.size() && table[i].what == state_tensor::kind::parameter; ++i) {
    auto first = table.offset(i);
    auto size = table[i].elements();
    if (first + size <= begin || first >= end)
      continue;
    auto values = model.values_of(i);
    if (values.empty() && size > 0) {
      if (size > copied_values_max)
        return false;
      copy.resize(size);
      model.read_tensor(i, copy);
      values = copy;
    }
    auto from = std::max(begin, first) - first;
    auto to = std::min(end, first + size) - first;
    take(values.subspan(from, to - from));
  }
  return true;
}

/// See parameter_sketch.
class sketching {
public:
  explicit sketching(epoch_id epoch) : random_(epoch.value()) {}

  void add(std::span<const float> values) {
    for (auto value : values) {
      if (count_ % 64 == 0)
        signs_ = random_.next();
      auto x = static_cast<double>(value);
      sums_[count_ % sums_.size()] += (signs_ >> (count_ % 64) & 1U) != 0 ? x : -x;
      squares_ += x * x;
      ++count_;
    }
  }
  /// Finite only if every value is: opposite infinities give NaN.
  [[nodiscard]] bool is_finite() const { return std::isfinite(squares_); }
  [[nodiscard]] parameter_sketch made() const {
    parameter_sketch out;
    for (std::size_t i = 0; i < sums_.size() && squares_ > 0; ++i)
      out.sums[i] = static_cast<float>(sums_[i] / std::sqrt(squares_));
    return out;
  }

private:
  random_source random_;
  std::uint64_t signs_ = 0;
  std::uint64_t count_ = 0;
  std::array<double, std::tuple_size_v<decltype(parameter_sketch::sums)>> sums_{};
  double squares_ = 0;
};

} // namespace

parameter_sample sample_parameters(const learner& model, epoch_id epoch, std::size_t values_max,
                                   bool hashed) {
  sha256_stream hash;
  sketching sketch{epoch};
  bool complete = for_window(model, epoch, values_max, [&](std::span<const float> values) {
    if (hashed)
      hash.add(std::as_bytes(values));
    sketch.add(values);
  });
  if (!complete)
    return {};
  if (!sketch.is_finite())
    return {not_finite_sample(), {}};
  return {hashed ? hash.finish() : digest{}, sketch.made()};
}

const digest& not_finite_sample() {
  static const digest one = sha256("parameters that are not finite");
  return one;
}

} // namespace waggle
