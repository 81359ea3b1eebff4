#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "runtime/codec/codec_choice.hpp"
#include "runtime/codec/exact_number.hpp"

namespace waggle {

class state_table;

/// What the members of a round settle about the update that they make with its mean: see "Terms of
/// an update" in README.md. Each contribution says it in values behind its buffers: the numbers of
/// the optimizer for each parameter, the learning rate first (codec_id::median64; missing: nobody
/// has a wish, because the run owns the rate, or a schedule that all loops follow), then whether a
/// parameter has a gradient (codec_id::largest64): an optimizer leaves out one that has none.
struct update_terms {
  /// Without wishes, all parameters with a gradient.
  update_terms(std::size_t parameters, std::size_t numbers_each)
    : numbers_of_each(numbers_each), numbers(parameters * numbers_each), present(parameters, true) {
  }

  std::size_t numbers_of_each;
  std::vector<std::optional<double>> numbers; // those of the first parameter, of the second, …
  std::vector<bool> present;                  // by parameter

  [[nodiscard]] std::optional<double>& number(std::size_t parameter, std::size_t which) {
    return numbers[parameter * numbers_of_each + which];
  }
  [[nodiscard]] const std::optional<double>& number(std::size_t parameter,
                                                    std::size_t which) const {
    return numbers[parameter * numbers_of_each + which];
  }

  // -- as values; first all numbers, then those of `present`

  /// 0 without numbers.
  static constexpr std::uint64_t value_count(std::size_t parameters, std::size_t numbers_each) {
    return numbers_each == 0 ? 0 : exact_values * parameters * (numbers_each + 1);
  }
  /// Of these, how many say what is present.
  static constexpr std::size_t present_values(std::size_t parameters, std::size_t numbers_each) {
    return numbers_each == 0 ? 0 : exact_values * parameters;
  }
  /// Their places in a vector, for codecs.
  static std::vector<tensor_info> infos(const state_table& of);
  /// REQUIRES: `out` has value_count.
  void write(std::span<float> out) const;
  /// REQUIRES: `values` are those of so many parameters.
  static update_terms read(std::span<const float> values, std::size_t parameters,
                           std::size_t numbers_each);
};

} // namespace waggle
