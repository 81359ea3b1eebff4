#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "actors/service/environment.hpp"

namespace waggle::python {

/// The lines of a peer's log on their way to a thread of Python: threads of the peer never wait for
/// the GIL. Thread-safe.
class log_lines {
public:
  static constexpr std::size_t waiting_max = 4096; // later lines are left out, and counted

  void add(log_level level, std::string_view text);
  /// There will be no more lines.
  void end();
  /// Waits for lines: "debug", "info", "warn" or "error", and the text. None: there are no more.
  /// Call it with the GIL, which is free meanwhile.
  [[nodiscard]] std::vector<std::pair<std::string, std::string>> take();

private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::pair<std::string, std::string>> waiting_;
  std::uint64_t left_out_ = 0;
  bool ended_ = false;
};

/// For environment::log: adds to `lines`, and ends them when the last copy of it is destroyed.
std::function<void(log_level, std::string_view)> log_to(std::shared_ptr<log_lines> lines);

} // namespace waggle::python
