#pragma once

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <map>
#include <optional>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <sys/wait.h>
#include <unistd.h>

#include "runtime/cli/child_process.hpp"
#include "runtime/net/http_client.hpp"
#include "tests/support/scratch_folder.hpp"

namespace waggle::testing {

using namespace std::chrono_literals;

/// Polls until `what` is true; returns false after `limit`. For conditions that other processes
/// change without a notification.
inline bool eventually(const std::function<bool()>& what, std::chrono::seconds limit = 60s) {
  auto until = std::chrono::steady_clock::now() + limit;
  while (!what()) {
    if (std::chrono::steady_clock::now() > until)
      return false;
    std::this_thread::sleep_for(10ms);
  }
  return true;
}

/// Returns a number from an environment variable of the test run, `otherwise` if it is not set.
/// Removes the variable from the environment, because `waggle` reports WAGGLE_ variables that are
/// no options.
inline std::uint64_t from_environment(const std::string& name, std::uint64_t otherwise) {
  static std::map<std::string, std::uint64_t> known;
  auto [found, first] = known.emplace(name, otherwise);
  if (const char* text = first ? std::getenv(name.c_str()) : nullptr) {
    found->second = std::strtoull(text, nullptr, 10);
    ::unsetenv(name.c_str());
  }
  return found->second;
}

/// The words of a command line, none of which has a space, and `more`.
inline std::vector<std::string> words(const std::string& line,
                                      const std::vector<std::string>& more = {}) {
  std::istringstream in{line};
  std::vector<std::string> all{std::istream_iterator<std::string>{in}, {}};
  all.insert(all.end(), more.begin(), more.end());
  return all;
}

/// A program in a separate process.
class program {
public:
  program(const scratch_folder& folder, const std::string& name,
          const std::vector<std::string>& command)
    : log_(folder.path() / (name + ".log")) {
    auto started = child_process::start(command, log_);
    if (started)
      process_.emplace(std::move(*started));
  }

  [[nodiscard]] std::string log() const { return content_of(log_); }
  [[nodiscard]] pid_t pid() const { return process_->pid(); }
  [[nodiscard]] bool runs() { return !process_->ended().has_value(); }
  void signal(int number) const { process_->signal(number); }
  /// The exit code; nothing if the process did not end in time or was ended by a signal.
  std::optional<int> await_exit(std::chrono::seconds limit = 20s) {
    auto status = await_end(limit);
    return status && WIFEXITED(*status) ? std::optional{WEXITSTATUS(*status)} : std::nullopt;
  }
  /// The signal that ended the process; nothing if it did not end in time or exited.
  std::optional<int> await_signal(std::chrono::seconds limit = 20s) {
    auto status = await_end(limit);
    return status && WIFSIGNALED(*status) ? std::optional{WTERMSIG(*status)} : std::nullopt;
  }

private:
  std::optional<int> await_end(std::chrono::seconds limit) {
    (void)eventually([this] { return !runs(); }, limit);
    return process_->ended();
  }

  std::filesystem::path log_;
  std::optional<child_process> process_;
};

/// Listens on a free port of the loopback interface unless `arguments` contain --listen.
class peer : public program {
public:
  peer(const scratch_folder& folder, const std::string& name,
       const std::vector<std::string>& arguments)
    : program(folder, name, command(folder, name, arguments)) {}

  /// The listening address, as soon as the log contains it.
  [[nodiscard]] std::optional<endpoint> address() const {
    auto text = log();
    auto at = text.find("listening on ");
    auto end = text.find('\n', at);
    if (at == std::string::npos || end == std::string::npos)
      return std::nullopt;
    auto parsed = parse_endpoint(text.substr(at + 13, end - at - 13));
    return parsed ? std::optional{*parsed} : std::nullopt;
  }
  endpoint await_address() {
    EXPECT_TRUE(eventually([this] { return address().has_value(); })) << log();
    return address().value_or(endpoint{});
  }

  /// The JSON lines that `waggle average` has printed so far.
  [[nodiscard]] std::vector<nlohmann::json> rounds() const {
    std::vector<nlohmann::json> found;
    std::istringstream lines{log()};
    for (std::string line; std::getline(lines, line);)
      if (line.starts_with("{\"round\"")) {
        auto parsed = nlohmann::json::parse(line, nullptr, false);
        if (!parsed.is_discarded())
          found.push_back(parsed);
      }
    return found;
  }

private:
  static std::vector<std::string> command(const scratch_folder& folder, const std::string& name,
                                          const std::vector<std::string>& arguments) {
    std::vector<std::string> all{WAGGLE_PROGRAM};
    all.insert(all.end(), arguments.begin(), arguments.end());
    if (std::find(all.begin(), all.end(), "--listen") == all.end())
      all.insert(all.end(), {"--listen", "127.0.0.1:0"});
    all.insert(all.end(), {"--data-dir", (folder.path() / name).string()});
    return all;
  }
};

/// What /api/v1/status shows; null if it shows nothing.
inline nlohmann::json status_of(const endpoint& where) {
  auto answer = net::http_get(where, "/api/v1/status", 5s);
  return answer ? nlohmann::json::parse(answer->body, nullptr, false) : nlohmann::json{};
}
inline nlohmann::json status_of(const peer& who) {
  auto where = who.address();
  return where ? status_of(*where) : nlohmann::json{};
}
/// 0 while there is none.
inline std::uint64_t number(const nlohmann::json& status, const char* name) {
  bool known = status.is_object() && status.contains(name) && status[name].is_number();
  return known ? status[name].get<std::uint64_t>() : 0;
}
template <class Peer>
std::uint64_t epoch_of(const Peer& who) {
  return number(status_of(who), "epoch");
}

/// The sum of the values of all lines of /metrics that start with `name` and contain `label`, e.g.
/// `reason="y"`. -1 if there is no such line.
inline double metric(const endpoint& where, const std::string& name,
                     const std::string& label = {}) {
  auto answer = net::http_get(where, "/metrics", 5s);
  // A test asks more often than a scraper, and may have to wait for its turn.
  (void)eventually([&] {
    if (!answer || answer->status != 429)
      return true;
    answer = net::http_get(where, "/metrics", 5s);
    return false;
  });
  if (!answer)
    return -1;
  double sum = -1;
  std::istringstream lines{answer->body};
  for (std::string line; std::getline(lines, line);)
    if (line.starts_with(name) && line.find(label) != std::string::npos)
      sum = std::max(sum, 0.0) + std::strtod(line.c_str() + line.rfind(' '), nullptr);
  return sum;
}

/// Every sample of the passes since the peer's start is in an update, or dropped and counted, or
/// waits for the end of its epoch; the metrics say the same. REQUIRES: the peer has finished, so
/// that nothing changes any more once the pass has ended that may still be running.
inline void expect_samples_accounted(const peer& who, std::uint64_t micro_batch) {
  auto where = who.address().value_or(endpoint{});
  nlohmann::json status;
  EXPECT_TRUE(eventually([&] {
    status = status_of(who);
    return status.is_object()
           && metric(where, "waggle_training_step_duration_seconds_count",
                     "phase=\"forward_backward\"")
                == status["steps"].get<double>();
  }))
    << status;
  ASSERT_TRUE(status.is_object() && status["samples"].is_object()) << status;
  auto used = status["samples"]["used"].get<std::uint64_t>();
  auto dropped = status["samples"]["dropped"].get<std::uint64_t>();
  auto waiting = status["samples_toward_epoch"].get<std::uint64_t>();
  EXPECT_GT(used, 0U) << status;
  EXPECT_EQ(used + dropped + waiting, status["steps"].get<std::uint64_t>() * micro_batch) << status;
  EXPECT_EQ(status["samples"]["offered"].get<std::uint64_t>(), used + dropped + waiting) << status;
  EXPECT_EQ(status["samples"]["pending"].get<std::uint64_t>(), waiting) << status;
  std::string samples = "waggle_training_samples_total";
  EXPECT_EQ(metric(where, samples, "outcome=\"used\""), static_cast<double>(used));
  EXPECT_EQ(metric(where, samples, "outcome=\"dropped\""), static_cast<double>(dropped));
}

} // namespace waggle::testing
