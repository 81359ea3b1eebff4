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

#include <pybind11/pybind11.h>

#include "actors/service/environment.hpp"

namespace waggle::python {

/// The lines of a peer's log on their way to a thread of Python: threads of the peer never wait for
/// the GIL. Thread-safe.
class log_lines {
public:
  static constexpr std::size_t waiting_max = 4096; // later lines are left out, and counted

  void add(log_level level, std::string_view text) {
    constexpr const char* names[]{"debug", "info", "warn", "error"};
    std::lock_guard lock{mutex_};
    if (waiting_.size() < waiting_max)
      waiting_.emplace_back(names[static_cast<std::size_t>(level)], text);
    else
      ++left_out_;
    changed_.notify_one();
  }
  /// There will be no more lines.
  void end() {
    std::lock_guard lock{mutex_};
    ended_ = true;
    changed_.notify_one();
  }
  /// Waits for lines: "debug", "info", "warn" or "error", and the text. None: there are no more.
  /// Call it with the GIL, which is free meanwhile.
  [[nodiscard]] std::vector<std::pair<std::string, std::string>> take() {
    // Also at the end of the program, whose exit handler calls `end`.
    pybind11::gil_scoped_release free;
    std::unique_lock lock{mutex_};
    changed_.wait(lock, [this] { return !waiting_.empty() || ended_; });
    if (auto count = std::exchange(left_out_, 0); count > 0)
      waiting_.emplace_back("warn",
                            std::to_string(count)
                              + " lines of the log are left out: whoever takes them is slow");
    return std::exchange(waiting_, {});
  }

private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::pair<std::string, std::string>> waiting_;
  std::uint64_t left_out_ = 0;
  bool ended_ = false;
};

/// For environment::log: adds to `lines`, and ends them when the last copy of it is destroyed.
inline std::function<void(log_level, std::string_view)> log_to(std::shared_ptr<log_lines> lines) {
  struct source {
    std::shared_ptr<log_lines> to;
    ~source() { to->end(); }
  };
  auto from = std::make_shared<source>(std::move(lines));
  return [from](log_level level, std::string_view text) { from->to->add(level, text); };
}

} // namespace waggle::python
