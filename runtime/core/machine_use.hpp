#pragma once

#include <filesystem>
#include <functional>
#include <mutex>
#include <optional>
#include <utility>

#include "runtime/core/time.hpp"

namespace waggle {

/// How full and how busy a machine is. Nothing: not known.
struct machine_use {
  std::optional<double> memory;     // share in use: of the container's limit, if that is scarcer
  std::optional<double> disk;       // share in use of the file system of a folder
  std::optional<double> load;       // tasks that run or wait, for each processor, over a minute
  std::optional<double> gpu;        // share of the time, of the busiest one; NVIDIA's only
  std::optional<double> gpu_memory; // share in use, of the fullest one

  friend bool operator==(const machine_use&, const machine_use&) = default;
};

/// @param folder for `disk`; empty: not measured. @param root where /proc and /sys are.
machine_use read_machine(const std::filesystem::path& folder,
                         const std::filesystem::path& root = "/");

/// Looks at the machine at most every two seconds. Thread-safe.
class machine_watch {
public:
  explicit machine_watch(std::function<machine_use()> read) : read_(std::move(read)) {}

  machine_use look(steady_time now) {
    std::lock_guard guard{mutex_};
    if (!looked_ || now - *looked_ >= 2s) {
      looked_ = now;
      latest_ = read_();
    }
    return latest_;
  }
  /// What it has seen last.
  [[nodiscard]] machine_use latest() const {
    std::lock_guard guard{mutex_};
    return latest_;
  }

private:
  const std::function<machine_use()> read_;
  mutable std::mutex mutex_;
  std::optional<steady_time> looked_;
  machine_use latest_;
};

} // namespace waggle
