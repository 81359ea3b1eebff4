#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "runtime/averaging/aggregation.hpp"
#include "runtime/averaging/guards.hpp"
#include "runtime/averaging/kernels.hpp"

// The computations of part_reducer over the contributions to one part. Values are decoded block by
// block, as often as an aggregator needs to read them, so that memory is one block per contributor.
// The bytes are a function of the contributions alone.
namespace waggle {

/// The values of all contributions at the same offset, decoded where necessary.
class block_rows {
public:
  block_rows(std::span<const contribution_view> contributions, std::size_t block_elements);

  /// The values [begin, begin + n) of each contribution; valid until the next call. REQUIRES: n ≤
  /// block_elements.
  kernels::row_span at(std::size_t begin, std::size_t n);

private:
  std::span<const contribution_view> contributions_;
  std::size_t block_elements_;
  std::unique_ptr<float[]> decoded_; // used where the bytes are not floats already
  std::vector<const float*> rows_;
};

/// out = (Σ weights[i]·x_i)·factor. Returns the largest magnitude in `out` as bits of a float.
std::uint32_t write_weighted_sum(std::span<const contribution_view> contributions,
                                 std::span<const double> weights, double factor,
                                 std::span<float> out);

/// The contributions' weights, capped at their lower median. A weight is as unproven as the values
/// that come with it: without a cap one Byzantine peer outweighs all others by claiming many
/// samples. A peer that really is that fast counts for less than it did; that is the price of a
/// robust aggregator.
std::vector<double> capped_weights(std::span<const contribution_view> contributions);

/// Σ x² of each contribution; finite if and only if all its values are.
std::vector<double> sums_of_squares(std::span<const contribution_view> contributions,
                                    std::size_t elements);

/// Steps of centered_clip after the median. The first removes most of the remaining Byzantine
/// influence.
constexpr std::size_t clip_steps = 3;

/// Writes the aggregate of `how` (see aggregation.hpp for the formulas) to `out`. Returns Σ x² of
/// each contribution; if one of them is not finite, `out` is not usable.
/// REQUIRES: `how` is not the mean; enough contributions for it (effective_aggregator).
std::vector<double> write_robust(aggregator how, std::size_t faulty_max,
                                 std::span<const contribution_view> contributions,
                                 std::span<float> out);

} // namespace waggle
