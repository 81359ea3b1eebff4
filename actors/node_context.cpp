#include "actors/node_context.hpp"

#include <spdlog/logger.h>

namespace waggle {

bool log_within(log_budget* budget, spdlog::logger& log, std::string_view kind, steady_time now,
                spdlog::level::level_enum level, const std::string& text) {
  auto permit = budget != nullptr ? budget->take(kind, now) : log_budget::permit{};
  if (!permit.remark.empty())
    log.log(level, "{}", permit.remark);
  if (permit.log)
    log.log(level, "{}", text);
  return permit.log;
}

void log_wait(spdlog::logger& log, const std::optional<wait_log::line>& line) {
  if (line)
    log.log(line->late ? spdlog::level::warn : spdlog::level::info, "{}", line->text);
}

} // namespace waggle
