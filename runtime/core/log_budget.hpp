#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>

#include "runtime/core/time.hpp"

namespace waggle {

/// Limits how many log lines of one kind others can cause: so many per window, then a line that
/// announces that more are left out, then nothing until the window has passed; the first line after
/// it says how many were. A kind is a word of the program, never text from the network.
/// Thread-safe.
class log_budget {
public:
  struct options {
    std::uint32_t lines = 60; // of each kind in a window
    steady_time::duration window = std::chrono::minutes{1};
  };

  log_budget() = default;
  explicit log_budget(options opts) : options_(opts) {}

  struct permit {
    bool log = true;
    /// Not empty: a further line, to be logged before this one or instead of it.
    std::string remark;
  };
  permit take(std::string_view kind, steady_time now) {
    std::lock_guard guard{mutex_};
    auto known = kinds_.find(kind);
    if (known == kinds_.end())
      known = kinds_.emplace(std::string{kind}, usage{now}).first;
    auto& of = known->second;
    permit out;
    if (now - of.since >= options_.window) {
      if (of.left_out > 0)
        out.remark = std::to_string(of.left_out) + " more lines like the next one were left out";
      of = {now};
    }
    if (of.logged < options_.lines) {
      ++of.logged;
      return out;
    }
    out.log = false;
    if (of.left_out++ == 0)
      out.remark =
        "further lines like the last one (" + std::string{kind} + ") are left out for up to "
        + std::to_string(std::chrono::duration_cast<std::chrono::seconds>(options_.window).count())
        + " s";
    return out;
  }

private:
  struct usage {
    steady_time since;
    std::uint32_t logged = 0;
    std::uint64_t left_out = 0;
  };

  const options options_{};
  std::mutex mutex_;
  std::map<std::string, usage, std::less<>> kinds_;
};

} // namespace waggle
