#pragma once

#include <memory>
#include <optional>
#include <span>

#include "runtime/averaging/part_table.hpp"
#include "runtime/core/buffer_pool.hpp"
#include "runtime/core/vector_pool.hpp"

namespace waggle {

/// Encodes what this member sends: its own values, and the sums that it computed. All member
/// functions are thread-safe.
class part_encoder {
public:
  /// @param own this member's vector; null: it has none (auxiliary).
  part_encoder(std::shared_ptr<const float_vector> own, std::shared_ptr<buffer_pool> memory)
    : own_(std::move(own)), memory_(std::move(memory)) {}

  /// Our values of `part`, encoded; without a copy if the codec is none. Nothing: they cannot be
  /// encoded because one is not finite. (With codec none, the reducer detects that.)
  [[nodiscard]] std::optional<payload> contribution(const part_table::part& part) const;

  /// @param values finite; part.count of them
  [[nodiscard]] payload encoded(const part_table::part& part, std::span<const float> values) const;

private:
  const std::shared_ptr<const float_vector> own_;
  const std::shared_ptr<buffer_pool> memory_;
};

} // namespace waggle
