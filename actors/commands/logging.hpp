#pragma once

#include <memory>
#include <string>

#include <spdlog/logger.h>

namespace waggle {

/// A logger to standard error: lines for people, or one JSON object a line with time, level, peer
/// and message. `level`: debug, info, warn, error.
std::shared_ptr<spdlog::logger> make_logger(const std::string& level, const std::string& format,
                                            const std::string& peer);

} // namespace waggle
