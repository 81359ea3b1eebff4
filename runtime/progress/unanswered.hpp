#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/core/endpoint.hpp"
#include "runtime/core/error.hpp"
#include "runtime/core/time.hpp"
#include "runtime/progress/unbroken.hpp"

namespace waggle {

/// What a peer waits for that reaches none of its addresses, and may not begin the run.
inline constexpr std::string_view nobody_answers =
  "any peer of the run: none of the addresses answers";

/// Ends the wait of a loop of one's own for anybody: its run may have ended. Not thread-safe.
class unanswered {
public:
  /// `limit`: of a wait without a break. `asked`: for the sentence.
  unanswered(std::string run, std::vector<endpoint> asked, milliseconds limit)
    : run_(std::move(run)), asked_(std::move(asked)), limit_(limit) {}

  /// `waiting_for`: why of decide_founding, now. ec::unreachable with a sentence for the user once
  /// the wait is over.
  [[nodiscard]] std::optional<failure> look(std::string_view waiting_for, steady_time now) {
    if (!waits_.lasts(waiting_for == nobody_answers, now, limit_))
      return std::nullopt;
    std::string where;
    for (const auto& each : asked_)
      where += to_string(each) + ", ";
    return failure{
      ec::unreachable,
      "no peer of a run named " + run_ + " has answered for "
        + std::to_string(std::chrono::ceil<std::chrono::seconds>(limit_).count()) + " s (" + where
        + "and addresses seen earlier): its name is another, it has ended and all have left, or "
          "it has not begun. Correct the name, start another peer of it first, pass the address "
          "of one that runs (initial_peers), or let this one begin it (start_alone); with a "
          "larger join_timeout it looks longer"};
  }

private:
  const std::string run_;
  const std::vector<endpoint> asked_;
  const milliseconds limit_;
  unbroken waits_;
};

} // namespace waggle
