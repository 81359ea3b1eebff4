#pragma once

#include <memory>
#include <string>

#include <spdlog/formatter.h>
#include <spdlog/logger.h>

namespace waggle {

/// Formats log records as a line of text ("text"), or as one JSON object ("json") with time, level,
/// peer, run and message. Messages may quote bytes from the network, so control characters are
/// escaped and very long messages are truncated.
std::unique_ptr<spdlog::formatter> make_formatter(const std::string& format,
                                                  const std::string& peer, const std::string& run);

/// A logger to standard error. `level`: debug, info, warn, error.
std::shared_ptr<spdlog::logger> make_logger(const std::string& level, const std::string& format,
                                            const std::string& peer, const std::string& run);

} // namespace waggle
