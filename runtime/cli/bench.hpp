#pragma once

// Common parts of the benchmarks of `waggle bench`.

#include <ctime>
#include <fstream>
#include <memory>

#include <nlohmann/json_fwd.hpp>

#include "runtime/cli/command_line.hpp"
#include "runtime/core/result.hpp"

namespace waggle {

struct bench_entry {
  std::string name;    // "allreduce"
  std::string summary; // what is measured, in one line
  std::string example; // a whole command
  std::function<int(const run_options&)> run;
};

/// The command `waggle bench` with these benchmarks; it refuses other names.
command bench_command(std::vector<bench_entry> benchmarks);

struct bench_timing {
  double seconds = 0;
  double cpu_seconds = 0; // of all the process's threads
};

class bench_stopwatch {
public:
  bench_stopwatch();
  [[nodiscard]] bench_timing elapsed() const;

private:
  double began_;
  std::clock_t cpu_began_;
};

/// By linear interpolation. REQUIRES: `values` is not empty, 0 ≤ q ≤ 1.
double quantile(std::vector<double> values, double q);

/// The fields that every benchmark reports: median_seconds, p25_seconds, p75_seconds, iterations,
/// cpu_seconds (the median). REQUIRES: at least one run.
nlohmann::ordered_json summary_of(const std::vector<bench_timing>& runs);

/// The file of --json, opened before anything is measured.
class bench_output {
public:
  /// Fails with ec::bad_config if the file cannot be written. Without --json no file is opened.
  static result<std::unique_ptr<bench_output>> open(const run_options& options);
  /// Writes the report if --json was given. Returns exit_clean or, after a sentence on standard
  /// error, exit_failed.
  int write(const nlohmann::ordered_json& report);

private:
  std::string name_;
  std::ofstream file_;
};

} // namespace waggle
