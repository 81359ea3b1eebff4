#pragma once

#include <string>
#include <vector>

namespace waggle {

/// One limit of what other peers may cost this one.
struct limit_row {
  std::string what;   // and of whom
  std::string value;  // with its unit
  std::string why;    // why as much, and not less
  std::string beyond; // what happens then
  std::string metric; // that shows it
};

/// All of them, with the values that are in force by default. runtime/README.md shows them; a
/// test compares the two.
std::vector<limit_row> limits_table();

/// As a list in Markdown, without `why` and `metric`.
std::string to_markdown(const std::vector<limit_row>& rows);

} // namespace waggle
