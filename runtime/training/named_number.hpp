#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/core/result.hpp"

namespace waggle {

/// A number in a text such as "step:every=30,factor=0.1", which belongs to an owner, "step".
struct named_number {
  enum class form : std::uint8_t { real, whole, list }; // list: whole numbers, at least one

  std::string_view name;
  form what = form::real;
  double low = 0;
  double high = 1;
  std::optional<double> initial{}; // none: it must be given
};

/// Names and values, as they are written. The views are into the text that was read.
using written_numbers = std::map<std::string_view, std::string_view>;

/// The pieces between the separators, without blanks around them; at least one.
std::vector<std::string_view> pieces_of(std::string_view text, char separator);
/// Reads "every=30,factor=0.1". Fails with ec::bad_config and half a sentence if a name is not one
/// of `names`, has no value or stands twice.
result<written_numbers> read_numbers(std::string_view owner, const std::vector<std::string>& names,
                                     std::string_view text);
/// The value of one number; several, in ascending order, of a list; the initial one if it is not
/// written. Fails with ec::bad_config and half a sentence that has the bounds and the default.
result<std::vector<double>> value_of(std::string_view owner, const named_number& of,
                                     const written_numbers& written);
/// The shortest text that is read back as the same number.
std::string shortest_text(double value);
/// "every=30": a number with its default; "every=N" if it has none.
std::string with_default(const named_number& number);

} // namespace waggle
