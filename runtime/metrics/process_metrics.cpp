#include "runtime/metrics/process_metrics.hpp"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include <unistd.h>

namespace waggle {

namespace {

double boot_time() {
  std::ifstream in{"/proc/stat"};
  std::string word;
  double value = 0;
  while (word != "btime" && in >> word)
    continue;
  in >> value;
  return value;
}

} // namespace

std::vector<prometheus::MetricFamily> process_metrics::usage() {
  static const double booted = boot_time();
  std::ifstream stat{"/proc/self/stat"};
  std::string line;
  std::getline(stat, line);
  // The name, field 2, may contain spaces; field[0] is field 3 of proc(5).
  std::istringstream fields{line.substr(line.rfind(')') + 1)};
  std::array<double, 22> field{};
  std::string word;
  for (auto& f : field)
    if (fields >> word)
      f = std::strtod(word.c_str(), nullptr);
  auto ticks = static_cast<double>(::sysconf(_SC_CLK_TCK));
  auto page = static_cast<double>(::sysconf(_SC_PAGESIZE));
  std::error_code error;
  double fds = 0;
  for (std::filesystem::directory_iterator it{"/proc/self/fd", error}, end; !error && it != end;
       it.increment(error))
    ++fds;

  std::vector<prometheus::MetricFamily> out;
  auto add = [&](const char* name, const char* help, prometheus::MetricType type, double value) {
    prometheus::ClientMetric metric;
    metric.counter.value = metric.gauge.value = value; // one of them is exported, by the type
    out.push_back({name, help, type, {metric}});
  };
  using enum prometheus::MetricType;
  add("process_cpu_seconds_total", "User and system time used, seconds.", Counter,
      (field[11] + field[12]) / ticks);
  add("process_start_time_seconds", "When the process started, Unix time.", Gauge,
      booted + field[19] / ticks);
  add("process_virtual_memory_bytes", "Virtual memory, bytes.", Gauge, field[20]);
  add("process_resident_memory_bytes", "Resident memory, bytes.", Gauge, field[21] * page);
  add("process_open_fds", "Open file descriptors.", Gauge, fds);
  return out;
}

} // namespace waggle
