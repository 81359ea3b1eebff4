#pragma once

#include <algorithm>
#include <mutex>
#include <optional>
#include <span>
#include <utility>

#include "runtime/core/float_vector.hpp"

namespace waggle {

/// Parameters that all peers of an epoch hold equally, while each peer's own ones differ from them:
/// the anchor of an anchored_learner, and behind it `padding` zeros. One thread changes them; any
/// other may copy them, which waits for such a change only.
class shared_parameters {
public:
  shared_parameters(std::size_t parameters, std::size_t padding)
    : parameters_(parameters), values_(parameters + padding) {}

  [[nodiscard]] std::size_t count() const { return parameters_; }
  /// REQUIRES: no other thread changes them meanwhile.
  [[nodiscard]] const float_vector& values() const { return values_; }

  /// Replaces them by what `change` makes of them.
  template <class Change>
  void change(Change&& change) {
    std::lock_guard lock{mutex_};
    change(values_);
  }
  /// A state that is loaded has these values from place `at` on. Until end_load, others see what
  /// was there before the first call.
  void load(std::size_t at, std::span<const float> from) {
    std::lock_guard lock{mutex_};
    if (!before_)
      before_ = values_;
    std::copy(from.begin(), from.end(), values_.begin() + static_cast<std::ptrdiff_t>(at));
  }
  /// Returns the values before the state; nothing if there was no `load`.
  std::optional<float_vector> end_load() {
    std::lock_guard lock{mutex_};
    return std::exchange(before_, std::nullopt);
  }

  /// Any thread: copies them, without the padding. REQUIRES: `out` has count() values.
  void copy(std::span<float> out) const {
    std::lock_guard lock{mutex_};
    const auto& from = before_ ? *before_ : values_;
    std::copy_n(from.begin(), out.size(), out.begin());
  }

private:
  const std::size_t parameters_;
  mutable std::mutex mutex_; // never held while anything else is waited for
  float_vector values_;
  std::optional<float_vector> before_; // of the state that is being loaded
};

} // namespace waggle
