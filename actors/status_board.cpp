#include "actors/status_board.hpp"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <sys/resource.h>
#include <unistd.h>
#include <vector>

namespace waggle {

namespace {

constexpr const char* json_type = "application/json";
constexpr const char* routes =
  R"(["/metrics","/healthz","/readyz","/api/v1/status","/api/v1/peers"])";

net::http_response json(unsigned status, std::string body) {
  return {status, json_type, std::move(body)};
}

/// Field `index` (from 1) of /proc/self/stat, counted behind the command's closing bracket.
double stat_field(std::size_t index) {
  std::ifstream in{"/proc/self/stat"};
  std::string line;
  std::getline(in, line);
  auto bracket = line.rfind(')');
  if (bracket == std::string::npos)
    return 0;
  std::istringstream rest{line.substr(bracket + 1)};
  std::string field;
  for (std::size_t i = 3; i <= index && (rest >> field); ++i) {
  }
  return std::strtod(field.c_str(), nullptr);
}

double boot_time() {
  std::ifstream in{"/proc/stat"};
  std::string word;
  double value = 0;
  while (in >> word)
    if (word == "btime" && (in >> value))
      return value;
  return 0;
}

void gauge(std::string& out, const char* name, const char* type, const char* help, double value) {
  char line[512];
  std::snprintf(line, sizeof line, "# HELP %s %s\n# TYPE %s %s\n%s %.17g\n", name, help, name, type,
                name, value);
  out += line;
}

} // namespace

std::string process_metrics() {
  std::string out;
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  auto seconds = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_usec) / 1e6;
  };
  auto ticks = static_cast<double>(sysconf(_SC_CLK_TCK));
  gauge(out, "process_cpu_seconds_total", "counter", "User and system CPU time in seconds.",
        seconds(usage.ru_utime) + seconds(usage.ru_stime));
  gauge(out, "process_resident_memory_bytes", "gauge", "Resident memory in bytes.",
        stat_field(24) * static_cast<double>(sysconf(_SC_PAGESIZE)));
  gauge(out, "process_virtual_memory_bytes", "gauge", "Virtual memory in bytes.", stat_field(23));
  std::size_t files = 0;
  std::error_code error;
  for (std::filesystem::directory_iterator it{"/proc/self/fd", error}, end; it != end && !error;
       it.increment(error))
    ++files;
  gauge(out, "process_open_fds", "gauge", "Open file descriptors.", static_cast<double>(files));
  gauge(out, "process_start_time_seconds", "gauge", "Start time of the process, Unix time in seconds.",
        boot_time() + stat_field(22) / ticks);
  return out;
}

void status_board::show_status(std::string text) {
  std::lock_guard guard{mutex_};
  status_ = std::move(text);
}

void status_board::show_peers(std::string text) {
  std::lock_guard guard{mutex_};
  peers_ = std::move(text);
}

void status_board::show_readiness(bool ready, std::string why) {
  std::lock_guard guard{mutex_};
  ready_ = ready;
  not_ready_because_ = std::move(why);
}

net::http_response status_board::answer(const net::http_request& request) const {
  auto route = request.target.substr(0, request.target.find('?'));
  bool known = std::strstr(routes, ("\"" + route + "\"").c_str()) != nullptr;
  if (!known)
    return json(404, R"({"error":"there is no such page","routes":)" + std::string{routes} + "}\n");
  if (request.method != "GET" && request.method != "HEAD")
    return json(405, "{\"error\":\"this page is only for reading: use GET\"}\n");
  if (route == "/metrics")
    return {200, "text/plain; version=0.0.4; charset=utf-8", metrics_->text() + process_metrics()};
  if (route == "/healthz")
    return {200, "text/plain; charset=utf-8", "alive\n"};
  std::lock_guard guard{mutex_};
  if (route == "/readyz")
    return {ready_ ? 200U : 503U, "text/plain; charset=utf-8",
            ready_ ? std::string{"ready\n"} : "not ready: " + not_ready_because_ + "\n"};
  return json(200, route == "/api/v1/status" ? status_ : peers_);
}

} // namespace waggle
