#pragma once

#include <utility>
#include <variant>

#include "runtime/core/error.hpp"

namespace waggle {

/// Either a T or the reason why there is none.
template <class T>
class [[nodiscard]] result {
public:
  result(T value) : content_(std::in_place_index<0>, std::move(value)) {}
  result(failure why) : content_(std::in_place_index<1>, std::move(why)) {}
  result(ec code) : result(failure{code, {}}) {}

  [[nodiscard]] bool ok() const { return content_.index() == 0; }
  explicit operator bool() const { return ok(); }

  /// Throws the failure (throw_failure), if there is one; so do the operators.
  [[nodiscard]] T& value() & {
    if (!ok()) [[unlikely]]
      throw_failure(std::get<1>(content_));
    return std::get<0>(content_);
  }
  [[nodiscard]] const T& value() const& {
    if (!ok()) [[unlikely]]
      throw_failure(std::get<1>(content_));
    return std::get<0>(content_);
  }
  [[nodiscard]] T&& value() && { return std::move(value()); }

  T& operator*() & { return value(); }
  const T& operator*() const& { return value(); }
  T&& operator*() && { return std::move(value()); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }

  /// REQUIRES: !ok().
  [[nodiscard]] const failure& error() const { return std::get<1>(content_); }

private:
  std::variant<T, failure> content_;
};

/// Success without a value, or the reason.
struct done {
  friend bool operator==(done, done) = default;
};
using status = result<done>;

} // namespace waggle
