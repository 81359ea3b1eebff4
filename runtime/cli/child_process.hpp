#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include <sys/types.h>

#include "runtime/core/result.hpp"

namespace waggle {

/// "with exit code 3" or "by signal 9", from an exit status as waitpid gives it.
std::string how_it_ended(int status);

std::string content_of(const std::filesystem::path& file);

/// A child process, with a log of both its outputs. It gets SIGTERM when this process dies, and is
/// killed and reaped by the destructor. REQUIRES: no other threads when it is started.
class child_process {
public:
  /// Runs `arguments[0]` (a path) with both outputs in `log`. It inherits no variable that sets an
  /// option: this process has read them, and WAGGLE_IDENTITY or INITIAL_PEERS are not for several
  /// children. Fails with ec::io_error.
  static result<child_process> start(const std::vector<std::string>& arguments,
                                     const std::filesystem::path& log);
  child_process(child_process&& other) noexcept;
  ~child_process();

  [[nodiscard]] pid_t pid() const { return pid_; }
  /// Sends a signal if the process still runs.
  void signal(int number) const;
  /// The exit status as waitpid gives it; nothing while the process runs.
  std::optional<int> ended();

  [[nodiscard]] const std::filesystem::path& log() const { return log_; }
  /// The last 2,000 bytes at most.
  [[nodiscard]] std::string end_of_log() const;
  /// Of a `waggle` command: ec::bad_config with its sentence if it refused its options; otherwise
  /// ec::internal with the end of its log. REQUIRES: the process has ended.
  [[nodiscard]] failure ended_early();

private:
  child_process(pid_t pid, std::filesystem::path log) : pid_(pid), log_(std::move(log)) {}

  pid_t pid_ = -1;
  std::filesystem::path log_;
  std::optional<int> status_;
};

} // namespace waggle
