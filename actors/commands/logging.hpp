#pragma once

#include <memory>
#include <string>

#include <spdlog/formatter.h>
#include <spdlog/logger.h>

namespace waggle {

/// How records are written: a line for people ("text"), or one JSON object ("json") with time,
/// level, peer and message. Messages quote what peers sent, so control characters are escaped and
/// very long ones cut.
std::unique_ptr<spdlog::formatter> make_formatter(const std::string& format,
                                                  const std::string& peer);

/// A logger to standard error. `level`: debug, info, warn, error.
std::shared_ptr<spdlog::logger> make_logger(const std::string& level, const std::string& format,
                                            const std::string& peer);

} // namespace waggle
