#pragma once

#include <algorithm>
#include <numeric>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace waggle {

/// The number of letters to insert, delete or replace to turn `a` into `b` (Levenshtein).
inline std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 0; i < a.size(); ++i) {
    auto diagonal = std::exchange(row[0], i + 1);
    for (std::size_t j = 0; j < b.size(); ++j) {
      auto replaced = diagonal + (a[i] == b[j] ? 0 : 1);
      diagonal = row[j + 1];
      row[j + 1] = std::min({replaced, row[j] + 1, row[j + 1] + 1});
    }
  }
  return row.back();
}

/// Whether `name` contains `part` as whole words, such as target-batch-size batch-size.
inline bool has_words(std::string_view name, std::string_view part) {
  auto ends = [name](std::size_t at) {
    return at >= name.size() || name[at] == '-' || name[at] == '_';
  };
  auto at = part.empty() ? std::string_view::npos : name.find(part);
  for (; at != std::string_view::npos; at = name.find(part, at + 1))
    if (ends(at - 1) && ends(at + part.size())) // -1 is beyond the end
      return true;
  return false;
}

/// The name with the smallest edit distance to `wrong`, of those that contain its words if there
/// are any; empty if `names` is empty.
inline std::string nearest(std::string_view wrong, const std::vector<std::string>& names) {
  auto distance = [wrong](const std::string& name) {
    return std::pair{!has_words(name, wrong), edit_distance(wrong, name)};
  };
  auto best = std::min_element(names.begin(), names.end(), [&](const auto& a, const auto& b) {
    return distance(a) < distance(b);
  });
  return best == names.end() ? std::string{} : *best;
}

} // namespace waggle
