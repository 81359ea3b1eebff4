#include "runtime/core/log_budget.hpp"

namespace waggle {

log_budget::permit log_budget::take(std::string_view kind, steady_time now) {
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

} // namespace waggle
