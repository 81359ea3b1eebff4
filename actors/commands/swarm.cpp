// Starts peers as processes of their own, watches them over HTTP, kills and adds some, sums up.

#include <chrono>
#include <csignal>
#include <cstdio>
#include <fstream>
#include <iostream>
#include <sstream>
#include <unistd.h>

#include "actors/commands/child_process.hpp"
#include "actors/commands/commands.hpp"
#include "actors/commands/peer_process.hpp"
#include "actors/commands/swarm_summary.hpp"
#include "runtime/config/options.hpp"
#include "runtime/net/http_client.hpp"

namespace waggle {

namespace {

namespace fs = std::filesystem;
using clock = std::chrono::steady_clock;

std::string read_file(const fs::path& file) {
  std::ifstream in{file};
  std::ostringstream all;
  all << in.rdbuf();
  return all.str();
}

class swarm {
public:
  explicit swarm(const run_options& options) : options_(options) {}

  int run() {
    if (auto ready = make_folder(); !ready)
      return bad_usage(ready.error().detail);
    std::printf("starting %llu peers; their logs are in %s\n",
                static_cast<unsigned long long>(options_.peers), folder_.c_str());
    for (std::uint64_t i = 0; i < options_.peers && !stopped_; ++i)
      if (auto started = start_peer(i == 0 ? std::string{} : address_of(0)); !started)
        return fail(started.error());
    began_ = clock::now();
    while (!stopped_ && !finished())
      if (auto going = turn(); !going)
        return fail(going.error());
    return end();
  }

private:
  struct member {
    child_process process;
    fs::path log;
    endpoint where;
    std::string join_line;
    swarm_summary::peer seen;
  };

  status make_folder() {
    std::error_code error;
    if (options_.given.count("data-dir") > 0) {
      folder_ = options_.data_dir;
      fs::create_directories(folder_, error);
    } else {
      auto pattern = (fs::temp_directory_path(error) / "waggle-swarm-XXXXXX").string();
      if (::mkdtemp(pattern.data()) == nullptr)
        return failure{ec::bad_config, "cannot make a folder in " + fs::temp_directory_path().string()};
      folder_ = pattern;
    }
    if (error)
      return failure{ec::bad_config, "cannot use --data-dir " + folder_.string() + ": " + error.message()};
    return done{};
  }

  [[nodiscard]] double seconds() const {
    return std::chrono::duration<double>(clock::now() - began_).count();
  }
  [[nodiscard]] std::string address_of(std::size_t i) const { return to_string(members_[i].where); }

  // -- peers -----------------------------------------------------------------------------------------

  /// `join_line` empty and nobody there: the run's first peer. An address: joins through it. A whole
  /// command, as a peer printed it: runs just that.
  status start_peer(const std::string& join) {
    auto index = members_.size();
    auto data = folder_ / ("peer-" + std::to_string(index));
    auto log = folder_ / ("peer-" + std::to_string(index) + ".log");
    auto self = fs::read_symlink("/proc/self/exe").string();
    std::vector<std::string> arguments;
    bool by_line = join.starts_with("waggle ");
    if (by_line) {
      arguments = {"/bin/sh", "-c",
                   "exec '" + self + "'" + join.substr(6) + " --data-dir '" + data.string()
                     + "' --linger 1h"};
    } else {
      arguments = {self, "train", "--listen", "127.0.0.1:0", "--data-dir", data.string(), "--linger", "1h"};
      for (const auto& [name, value] : options_.given) {
        const auto* spec = find_option(name);
        if (spec->group == "training" || spec->group == "averaging" || name == "run-id"
            || name == "log-level" || name == "log-format")
          if (name != "linger") {
            arguments.push_back("--" + name);
            arguments.push_back(value);
          }
      }
      if (!join.empty()) {
        arguments.emplace_back("--initial-peers");
        arguments.push_back(join);
      }
    }
    auto process = child_process::start(arguments, log);
    if (!process)
      return process.error();
    members_.push_back({std::move(*process), log, {}, {}, {}});
    members_.back().seen.joined_late = by_line;
    return await_start(members_.back());
  }

  /// Until it listens: its log says where.
  status await_start(member& m) {
    for (auto until = clock::now() + 60s; clock::now() < until;) {
      auto text = read_file(m.log);
      auto at = text.find("listening on ");
      auto line = text.find("\nwaggle train ");
      if (at != std::string::npos && line != std::string::npos && text.find('\n', line + 1) != std::string::npos) {
        auto address = text.substr(at + 13, text.find('\n', at) - at - 13);
        if (auto where = parse_endpoint(address))
          m.where = *where;
        m.join_line = text.substr(line + 1, text.find('\n', line + 1) - line - 1);
        return done{};
      }
      if (m.process.ended())
        return failure{ec::internal, "a peer did not start; its log says:\n" + text};
      if (wait_for_signal(50ms)) {
        stopped_ = true;
        return done{};
      }
    }
    return failure{ec::timeout, "a peer did not start within a minute; see " + m.log.string()};
  }

  // -- watching ----------------------------------------------------------------------------------------

  status turn() {
    if (wait_for_signal(1s)) {
      stopped_ = true;
      return done{};
    }
    for (auto& m : members_) {
      if (m.seen.killed)
        continue;
      if (m.process.ended())
        return failure{ec::internal, "peer " + m.seen.last.id.substr(0, 8) + " ended unasked; its log says:\n"
                                       + last_lines(m.log)};
      look_at(m);
    }
    show();
    if (options_.kill_after > 0ms && summary_.kills == 0 && clock::now() - began_ >= options_.kill_after) {
      // The first peer, through which all others joined: no peer is special.
      auto& victim = members_.front();
      say("killing peer " + victim.seen.last.id.substr(0, 8) + " (the first one) with SIGKILL");
      victim.process.signal(SIGKILL);
      victim.seen.killed = true;
      ++summary_.kills;
    }
    if (options_.join_after > 0ms && summary_.joins == 0 && clock::now() - began_ >= options_.join_after) {
      auto line = members_.back().join_line;
      say("a new peer joins by the line that peer " + members_.back().seen.last.id.substr(0, 8)
          + " printed:\n  " + line);
      ++summary_.joins;
      return start_peer(line);
    }
    return done{};
  }

  static std::string last_lines(const fs::path& log) {
    auto text = read_file(log);
    return text.size() > 2000 ? text.substr(text.size() - 2000) : text;
  }

  static bool look_at(member& m) {
    auto answer = net::http_get(m.where, "/api/v1/status", 2s);
    if (!answer)
      return false;
    auto snapshot = parse_snapshot(answer->body);
    if (snapshot)
      m.seen.last = *snapshot;
    return snapshot.has_value();
  }

  [[nodiscard]] bool finished() const {
    if (options_.duration > 0ms && clock::now() - began_ >= options_.duration)
      return true;
    if (options_.epochs == 0)
      return false;
    if (options_.kill_after > 0ms && summary_.kills == 0)
      return false;
    if (options_.join_after > 0ms && summary_.joins == 0)
      return false;
    return std::all_of(members_.begin(), members_.end(), [](const member& m) {
      return m.seen.killed || m.seen.last.phase == "finished";
    });
  }

  void say(const std::string& what) {
    std::printf("[%5.0fs] %s\n", seconds(), what.c_str());
    std::fflush(stdout);
    lines_shown_ = 0;
  }

  void show() {
    bool terminal = ::isatty(STDOUT_FILENO) == 1;
    if (!terminal) {
      if (seconds() < next_line_)
        return;
      next_line_ = seconds() + 5;
      std::string text;
      for (const auto& m : members_)
        text += "  " + row(m, true);
      say(text.substr(2));
      return;
    }
    if (lines_shown_ > 0)
      std::printf("\x1b[%zuA", lines_shown_);
    std::printf("\x1b[2K%5.0fs  peer      state      epoch  samples    loss  MB moved  last round\n", seconds());
    for (const auto& m : members_)
      std::printf("\x1b[2K        %s\n", row(m, false).c_str());
    std::fflush(stdout);
    lines_shown_ = members_.size() + 1;
  }

  static std::string row(const member& m, bool brief) {
    const auto& s = m.seen.last;
    char line[256];
    auto state = m.seen.killed ? "killed" : s.phase.c_str();
    std::snprintf(line, sizeof line, brief ? "%.8s %s e%llu %llu loss %.3f %.1fMB %s;" : "%-8.8s  %-9s  %5llu  %7llu  %6.3f  %8.1f  %s",
                  s.id.empty() ? "?" : s.id.c_str(), state, static_cast<unsigned long long>(s.epoch),
                  static_cast<unsigned long long>(s.samples_toward_epoch), s.loss,
                  static_cast<double>(s.bytes) / 1e6, s.last_outcome.c_str());
    return line;
  }

  // -- the end -------------------------------------------------------------------------------------------

  /// Looks until all living peers stand at one epoch, so that their parameters can be compared.
  void compare_parameters() {
    for (auto until = clock::now() + 10s; clock::now() < until && !stopped_;) {
      std::string epoch;
      std::string parameters;
      bool one_epoch = true;
      bool equal = true;
      for (auto& m : members_) {
        if (m.seen.killed)
          continue;
        one_epoch = look_at(m) && one_epoch;
        const auto& s = m.seen.last;
        auto number = std::to_string(s.epoch);
        one_epoch = one_epoch && !s.parameters.empty() && (epoch.empty() || epoch == number);
        equal = equal && (parameters.empty() || parameters == s.parameters);
        epoch = number;
        parameters = s.parameters;
      }
      if (one_epoch) {
        summary_.parameters_equal = equal;
        if (equal)
          return; // else: one may be just taking the state of the others
      }
      stopped_ = wait_for_signal(100ms);
    }
  }

  void stop_all() {
    for (auto& m : members_)
      m.process.signal(SIGTERM);
    for (auto until = clock::now() + 4500ms; clock::now() < until;) {
      if (std::all_of(members_.begin(), members_.end(), [](member& m) { return m.process.ended().has_value(); }))
        return;
      ::usleep(20'000);
    }
    for (auto& m : members_)
      m.process.signal(SIGKILL);
  }

  int end() {
    bool interrupted = stopped_;
    if (!interrupted)
      compare_parameters();
    summary_.seconds = seconds();
    stop_all();
    for (const auto& m : members_)
      summary_.peers.push_back(m.seen);
    std::printf("\n%s", summary_.text().c_str());
    if (options_.json_file) {
      std::ofstream out{*options_.json_file};
      out << summary_.json();
      if (!out.flush()) {
        std::cerr << "waggle: cannot write --json " << options_.json_file->string() << "\n";
        return exit_failed;
      }
    }
    return exit_clean;
  }

  int fail(const failure& why) {
    std::cerr << "waggle: " << why.detail << "\n";
    stop_all();
    return exit_failed;
  }

  run_options options_;
  fs::path folder_;
  std::vector<member> members_;
  swarm_summary summary_;
  clock::time_point began_ = clock::now();
  bool stopped_ = false;
  std::size_t lines_shown_ = 0;
  double next_line_ = 0;
};

int run_swarm(const run_options& options) { return swarm{options}.run(); }

} // namespace

command swarm_command() {
  return {"swarm", "Several local peers of one run, a live table of them, a summary at the end.",
          "Takes the options of waggle train for all peers:\n"
          "  waggle swarm --peers 4 --epochs 100 --data /usr/share/common-licenses\n"
          "  waggle swarm --peers 4 --duration 2m --kill-after 40s --join-after 60s --json result.json\n",
          {"peer", "training", "averaging", "swarm", "output"}, {}, run_swarm};
}

} // namespace waggle
