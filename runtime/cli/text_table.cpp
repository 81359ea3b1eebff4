#include "runtime/cli/text_table.hpp"

#include <algorithm>

#include "runtime/core/check.hpp"

namespace waggle {

namespace {

constexpr std::size_t gap = 2;

std::string padded(std::string cell, std::size_t width, bool right) {
  if (cell.size() > width)
    cell.resize(width);
  cell.insert(right ? 0 : cell.size(), width - cell.size(), ' ');
  return cell;
}

} // namespace

void text_table::add_row(std::vector<std::string> cells) {
  WAGGLE_CHECK(cells.size() == columns_.size(), "a row has a cell for each column");
  rows_.push_back(std::move(cells));
}

std::vector<std::string> text_table::lines(std::size_t width) const {
  std::vector<std::size_t> widths;
  std::size_t used = 0;
  for (std::size_t i = 0; i < columns_.size(); ++i) {
    const auto& c = columns_[i];
    auto wanted = std::max(c.width, c.title.size());
    for (const auto& row : rows_)
      wanted = std::max(wanted, row[i].size());
    auto before = used + (i == 0 ? 0 : gap);
    auto room = width > before ? width - before : 0;
    if (wanted > room) {
      // A truncated number would be wrong; a text may be cut. The first column is always shown.
      if (i == 0 || (c.cut_to > 0 && room >= c.cut_to))
        widths.push_back(room);
      break;
    }
    widths.push_back(wanted);
    used = before + wanted;
  }
  auto line = [&](const auto& cell_of) {
    std::string text;
    for (std::size_t i = 0; i < widths.size(); ++i) {
      if (i > 0)
        text.append(gap, ' ');
      text += padded(cell_of(i), widths[i], columns_[i].right);
    }
    text.erase(text.find_last_not_of(' ') + 1);
    return text;
  };
  std::vector<std::string> out{line([&](std::size_t i) { return columns_[i].title; })};
  for (const auto& row : rows_)
    out.push_back(line([&](std::size_t i) { return row[i]; }));
  return out;
}

} // namespace waggle
