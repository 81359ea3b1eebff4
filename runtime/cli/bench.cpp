#include "runtime/cli/bench.hpp"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>

#include <nlohmann/json.hpp>

namespace waggle {

namespace {

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

} // namespace

command bench_command(std::vector<bench_entry> benchmarks) {
  std::string names;
  std::string details;
  for (const auto& b : benchmarks) {
    names += (names.empty() ? "" : ", ") + b.name;
    details += b.name + ": " + b.summary + "\n  " + b.example + "\n";
  }
  auto run = [benchmarks = std::move(benchmarks), names](const run_options& options) {
    const auto& name = options.arguments.empty() ? std::string{} : options.arguments.front();
    for (const auto& b : benchmarks)
      if (b.name == name)
        return b.run(options);
    return bad_usage(name.empty() ? "waggle bench needs the name of a benchmark: " + names
                                  : "there is no benchmark '" + name + "'; there is: " + names);
  };
  return {.name = "bench",
          .summary = "Measure this build on this machine.",
          .details = details,
          .groups = {"training", "averaging", "average", "swarm", "output", "bench"},
          .arguments = {{"NAME", "What to measure: " + names + "."}},
          .run = run};
}

bench_stopwatch::bench_stopwatch() : began_(now()), cpu_began_(std::clock()) {}

bench_timing bench_stopwatch::elapsed() const {
  return {now() - began_, static_cast<double>(std::clock() - cpu_began_) / CLOCKS_PER_SEC};
}

double quantile(std::vector<double> values, double q) {
  std::sort(values.begin(), values.end());
  auto at = q * static_cast<double>(values.size() - 1);
  auto below = static_cast<std::size_t>(at);
  auto above = std::min(below + 1, values.size() - 1);
  return values[below] + (at - static_cast<double>(below)) * (values[above] - values[below]);
}

nlohmann::ordered_json summary_of(const std::vector<bench_timing>& runs) {
  std::vector<double> seconds;
  std::vector<double> cpu;
  for (const auto& run : runs) {
    seconds.push_back(run.seconds);
    cpu.push_back(run.cpu_seconds);
  }
  return {{"median_seconds", quantile(seconds, 0.5)},
          {"p25_seconds", quantile(seconds, 0.25)},
          {"p75_seconds", quantile(seconds, 0.75)},
          {"iterations", runs.size()},
          {"cpu_seconds", quantile(cpu, 0.5)}};
}

result<std::unique_ptr<bench_output>> bench_output::open(const run_options& options) {
  auto out = std::make_unique<bench_output>();
  if (options.json_file) {
    out->name_ = options.json_file->string();
    out->file_.open(out->name_);
    if (!out->file_)
      return failure{ec::bad_config,
                     "cannot write --json " + out->name_ + ": " + std::strerror(errno)};
  }
  return out;
}

int bench_output::write(const nlohmann::ordered_json& report) {
  if (name_.empty())
    return exit_clean;
  file_ << report.dump(2) << "\n";
  file_.close();
  if (!file_) {
    std::fprintf(stderr, "waggle: cannot write --json %s\n", name_.c_str());
    return exit_failed;
  }
  return exit_clean;
}

} // namespace waggle
