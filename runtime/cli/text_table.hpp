#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace waggle {

/// A table in columns, for people. Cells are ASCII without control characters (see `printable`), so
/// that a character is a column of the terminal.
class text_table {
public:
  struct column {
    std::string title;
    std::size_t width = 0;  // minimum; longer titles and cells widen the column
    bool right = false;     // right-aligned, for numbers
    std::size_t cut_to = 0; // > 0: may be cut to this many characters if the table is too wide
  };

  static constexpr std::size_t unlimited = ~std::size_t{0};

  explicit text_table(std::vector<column> columns) : columns_(std::move(columns)) {}

  void add_row(std::vector<std::string> cells);

  /// The titles, then the rows; no line is longer than `width`. Columns that do not fit are omitted
  /// from the right, so the most important ones should come first.
  [[nodiscard]] std::vector<std::string> lines(std::size_t width = unlimited) const;

private:
  std::vector<column> columns_;
  std::vector<std::vector<std::string>> rows_;
};

} // namespace waggle
