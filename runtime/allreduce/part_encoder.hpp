#pragma once

#include <memory>
#include <optional>
#include <span>

#include "runtime/averaging/part_table.hpp"
#include "runtime/core/buffer_pool.hpp"
#include "runtime/core/vector_pool.hpp"

namespace waggle {

/// Values as they travel: this member's own, and the sums that it sends. Every member is
/// thread-safe.
class part_encoder {
public:
  /// @param own this member's vector; null: it has none (auxiliary).
  part_encoder(std::shared_ptr<const float_vector> own, std::shared_ptr<buffer_pool> memory)
    : own_(std::move(own)), memory_(std::move(memory)) {}

  /// Our values of `part`, encoded, or where they lie if they are sent as they are. Nothing: they
  /// cannot be encoded, one is not finite. (Of values that are sent as they are, reducers say so.)
  [[nodiscard]] std::optional<payload> contribution(const part_table::part& part) const;

  /// @param values finite; part.count of them
  [[nodiscard]] payload encoded(const part_table::part& part, std::span<const float> values) const;

private:
  const std::shared_ptr<const float_vector> own_;
  const std::shared_ptr<buffer_pool> memory_;
};

} // namespace waggle
