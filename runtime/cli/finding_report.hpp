#pragma once

#include <iostream>
#include <optional>
#include <utility>
#include <vector>

#include "runtime/cli/command_line.hpp"
#include "runtime/cli/findings.hpp"

namespace waggle {

/// Prints findings as they come, or at the end as JSON.
class finding_report {
public:
  explicit finding_report(bool as_json) : as_json_(as_json) {}

  void add(std::optional<finding> f) {
    if (f && !as_json_)
      std::cout << to_line(*f) << std::endl; // at once: the next check may take seconds
    if (f)
      all_.push_back(std::move(*f));
  }
  void add(std::vector<finding> more) {
    for (auto& f : more)
      add(std::move(f));
  }
  [[nodiscard]] int end() const {
    if (as_json_)
      std::cout << to_json(all_) << "\n";
    return any_bad(all_) ? exit_failed : exit_clean;
  }

private:
  bool as_json_;
  std::vector<finding> all_;
};

} // namespace waggle
