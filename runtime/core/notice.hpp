#pragma once

#include <string>
#include <vector>

namespace waggle {

/// Something that the operator should know and act on.
struct notice {
  std::string matter; // in a word: the same while only the numbers in `seen` change
  std::string seen;   // empty: nothing
  std::string cure;   // what to change; empty: nothing

  [[nodiscard]] bool empty() const { return seen.empty(); }
  [[nodiscard]] std::string text() const { return seen + (cure.empty() ? "" : ": " + cure); }
  friend bool operator==(const notice&, const notice&) = default;
};

inline std::string text_of(const std::vector<notice>& all) {
  std::string text;
  for (const auto& each : all)
    text += (text.empty() ? "" : "; ") + each.text();
  return text;
}

} // namespace waggle
