#pragma once

#include <array>
#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "runtime/codec/part_reader.hpp"
#include "runtime/core/error.hpp"

namespace waggle {

/// The contribution to a part of a member with a weight above 0.
struct contribution_view {
  std::size_t member;
  double weight;
  const part_reader* values;
};

/// All reasons for which values are refused: those of outliers, and a wrong length.
inline constexpr std::array value_faults{ec::non_finite, ec::bad_weight, ec::wrong_shape,
                                         ec::implausible_norm};

/// Why a contributor should not count in this round, with the numbers that show it.
struct outlier {
  std::size_t member;
  /// ec::non_finite, ec::implausible_norm or ec::bad_weight.
  ec reason;
  double observed;
  double bound;

  friend bool operator==(const outlier&, const outlier&) = default;
};

/// "root mean square 3.1e+12, bound 1e+06".
std::string describe(const outlier& what);

/// A part's root mean square is implausible if it is more than this many times the median of the
/// others', where a median below 1 counts as 1. So no member is excluded for values below a
/// million, whatever the others sent (for example a part for which only one peer has gradients).
/// Robust aggregators handle Byzantine contributions below this bound.
constexpr double norm_ratio_max = 1e6;

/// A weight is a number of samples of one epoch. It is implausible if it exceeds this many times
/// the median of the others'.
constexpr double weight_ratio_max = 1e9;

/// Both comparisons need at least two others. For an even number of others their median is the
/// larger of the middle two: ties favour the contributor.
constexpr std::size_t contributions_to_compare = 3;

/// Contributors whose weights are implausible compared with the others'. Cheap: does not read the
/// values.
std::vector<outlier> judge_weights(std::span<const contribution_view> contributions);

/// Contributors whose values are not finite, or implausibly large compared with those of the others
/// that are finite. `squares` are the sums of the squared values of each contribution's part of
/// `elements` values. Sorted by member.
std::vector<outlier> judge_values(std::span<const contribution_view> contributions,
                                  std::span<const double> squares, std::size_t elements);

} // namespace waggle
