#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "runtime/averaging/aggregation.hpp"
#include "runtime/averaging/guards.hpp"
#include "runtime/averaging/kernels.hpp"
#include "runtime/codec/sums.hpp"

// The computations of part_reducer over the contributions to one part. Values are decoded block by
// block, as often as an aggregator needs to read them, so that memory is one block per contributor.
// The bytes are a function of the contributions alone.
namespace waggle {

/// The values of all contributions at the same offset, decoded where necessary.
class block_rows {
public:
  block_rows(std::span<const contribution_view> contributions, std::size_t longest);

  /// The values [begin, begin + n) of each contribution; valid until the next call. REQUIRES: n ≤
  /// `longest`.
  kernels::row_span at(std::size_t begin, std::size_t n);

private:
  std::span<const contribution_view> contributions_;
  std::size_t longest_;
  std::unique_ptr<float[]> decoded_; // used where the bytes are not floats already
  std::vector<const float*> rows_;
};

// One block of each of a few contributors fits into the first-level cache. The result depends on
// this value: distances are summed block by block.
constexpr std::size_t block_elements = 512;

template <class F>
void for_each_block(std::span<const contribution_view> contributions, std::size_t elements, F f) {
  block_rows rows{contributions, block_elements};
  for (std::size_t begin = 0; begin < elements; begin += block_elements) {
    auto n = std::min(block_elements, elements - begin);
    f(begin, n, rows.at(begin, n));
  }
}

/// The same, and sums the squares of each contribution.
template <class F>
std::vector<double> for_each_block_at_first(std::span<const contribution_view> contributions,
                                            std::size_t elements, F f) {
  std::vector<double> squares(contributions.size(), 0.0);
  for_each_block(contributions, elements,
                 [&](std::size_t begin, std::size_t n, kernels::row_span rows) {
                   for (std::size_t i = 0; i < rows.size(); ++i)
                     squares[i] += codecs::lane_sum_of_squares(rows[i], n, 0.0);
                   f(begin, n, rows);
                 });
  return squares;
}

/// out = (Σ weights[i]·x_i)·factor. Returns the largest magnitude in `out` as bits of a float.
/// REQUIRES: at least one contribution; all of one codec. @param odd see kernels::weighted_sum.
std::uint32_t write_weighted_sum(std::span<const contribution_view> contributions,
                                 std::span<const double> weights, double factor,
                                 std::span<float> out, bool odd = false);

/// The contributions' weights, capped at their lower median. A weight is as unproven as the values
/// that come with it: without a cap one Byzantine peer outweighs all others by claiming many
/// samples. A peer that really is that fast counts for less than it did; that is the price of a
/// robust aggregator.
std::vector<double> capped_weights(std::span<const contribution_view> contributions);

/// For codec_result::median, largest and mean: what the contributions make of each number. One that
/// nobody has is missing, and 0 in a mean. Weighs median and mean by `weights`. Returns sums of
/// squares, of which only those that are not finite mean something; `out` is of no use then.
/// REQUIRES: whole numbers.
std::vector<double> write_numbers(codec_result how,
                                  std::span<const contribution_view> contributions,
                                  std::span<const double> weights, std::span<float> out);

/// Σ x² of each contribution; finite if and only if all its values are.
std::vector<double> sums_of_squares(std::span<const contribution_view> contributions,
                                    std::size_t elements);

/// Steps of centered_clip after the median. The first removes most of the remaining Byzantine
/// influence.
constexpr std::size_t clip_steps = 3;

} // namespace waggle
