// Starts peers as separate processes, watches them over HTTP, kills and adds some, and prints a
// summary.

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <thread>
#include <tuple>

#include <sys/ioctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "runtime/cli/commands.hpp"
#include "runtime/cli/join_line.hpp"
#include "runtime/cli/local_swarm.hpp"
#include "runtime/cli/signals.hpp"
#include "runtime/cli/swarm_summary.hpp"
#include "runtime/cli/swarm_table.hpp"
#include "runtime/cli/text_table.hpp"
#include "runtime/config/options.hpp"
#include "runtime/net/http_client.hpp"
#include "runtime/training/strategy.hpp"

namespace waggle {

namespace {

namespace fs = std::filesystem;
using clock = std::chrono::steady_clock;

/// The size of the terminal on standard output; nothing if it is no terminal. 80 × 24 if the
/// terminal does not report its size.
std::optional<terminal_size> terminal() {
  if (::isatty(STDOUT_FILENO) != 1)
    return std::nullopt;
  winsize size{};
  if (::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0 || size.ws_row == 0)
    return terminal_size{80, 24};
  return terminal_size{size.ws_col, size.ws_row};
}

constexpr terminal_size no_terminal{text_table::unlimited, text_table::unlimited};

/// Ctrl-C ends everything within five seconds: one last request to all peers at once, then
/// hurried_stop_timeout. At a normal end, peers get their own shutdown time and a little more.
constexpr auto question_timeout = 1s;
constexpr auto last_question_timeout = 800ms;
constexpr milliseconds stop_timeout = 6s;
constexpr milliseconds hurried_stop_timeout = 3s;

class swarm {
public:
  explicit swarm(const run_options& options) : options_(options) {
    summary_.strategy = options.strategy.text();
    summary_.exact = !options.strategy->averages_parameters();
  }

  int run() {
    if (options_.json_file && !std::ofstream{*options_.json_file, std::ios::app})
      return bad_usage("cannot write --json " + options_.json_file->string());
    if (auto ready = make_folder(); !ready)
      return bad_usage(ready.error().detail);
    if (auto crowded =
          too_many_threads(options_, options_.peers, std::thread::hardware_concurrency()))
      warn(*crowded);
    std::printf("starting %llu peer%s; logs in %s\n",
                static_cast<unsigned long long>(options_.peers), options_.peers == 1 ? "" : "s",
                folder_.c_str());
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
  /// What was seen of one of swarm_'s peers.
  struct member {
    local_peer* peer;
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
        return failure{ec::bad_config, "cannot make a folder like " + pattern};
      folder_ = pattern;
    }
    if (error)
      return failure{ec::bad_config,
                     "cannot use --data-dir " + folder_.string() + ": " + error.message()};
    return done{};
  }

  [[nodiscard]] double seconds() const {
    return std::chrono::duration<double>(clock::now() - began_).count();
  }
  [[nodiscard]] std::string address_of(std::size_t i) const {
    return to_string(members_[i].peer->where);
  }

  // -- peers -------------------------------------------------------------------------------------

  /// `join`: empty for the run's first peer; an address to join through; or a whole command, as a
  /// peer printed it, which is run unchanged.
  status start_peer(const std::string& join) {
    auto index = members_.size();
    auto data = folder_ / ("peer-" + std::to_string(index));
    auto log = folder_ / ("peer-" + std::to_string(index) + ".log");
    auto self = fs::read_symlink("/proc/self/exe").string();
    std::vector<std::string> arguments;
    bool by_line = join.starts_with("waggle ");
    if (by_line) {
      arguments = {"/bin/sh", "-c",
                   "exec " + shell_word(self) + join.substr(6) + " --data-dir "
                     + shell_word(data.string()) + " --linger 1h"};
    } else {
      arguments = {self,         "train",       "--listen", "127.0.0.1:0",
                   "--data-dir", data.string(), "--linger", "1h"};
      auto add = [&arguments](const std::string& name, const std::string& value) {
        arguments.insert(arguments.end(), {"--" + name, value});
      };
      for (const auto& [name, value] : options_.given) {
        const auto& group = find_option(name)->group;
        bool taken = group == "training" || group == "averaging" || name == "run-id"
                     || name == "swarm-key" || name.starts_with("members") || name == "log-level"
                     || name == "log-format";
        if (taken && name != "linger")
          add(name, value);
      }
      auto cores = std::thread::hardware_concurrency() / options_.peers; // the peers share them
      if (!options_.given.contains("reduce-threads"))
        add("reduce-threads", std::to_string(part_workers(options_.reduce_threads,
                                                          options_.compute_threads(), cores)));
      if (options_.seed != 0) // a seed per peer, so that they draw different samples
        add("seed", std::to_string(options_.seed + index));
      if (!join.empty())
        add("initial-peers", join);
    }
    auto started = swarm_.start(arguments, log);
    if (!started && started.error().code == ec::cancelled)
      stopped_ = true;
    else if (!started)
      return started;
    members_.push_back({&swarm_.peers().back(), {}});
    members_.back().seen.joined_late = by_line;
    return done{};
  }

  // -- watching ----------------------------------------------------------------------------------

  status turn() {
    if (told_to_end(1s)) {
      stopped_ = true;
      return done{};
    }
    for (auto& m : members_) {
      if (m.seen.killed)
        continue;
      if (auto status = m.peer->ended()) {
        if (!WIFSIGNALED(*status) || WTERMSIG(*status) != SIGKILL)
          return failure{ec::internal, "peer " + name_of(m) + " ended unexpectedly; its log says:\n"
                                         + m.peer->end_of_log()};
        // Killed from outside, for example by the user as a test: the others go on.
        say("peer " + name_of(m) + " was killed");
        m.seen.killed = true;
        ++summary_.kills;
        continue;
      }
    }
    look_at_all(question_timeout);
    if (told_to_end(0ms)) {
      stopped_ = true;
      return done{};
    }
    auto alive = [](const member& m) { return !m.seen.killed; };
    if (std::ranges::none_of(members_, alive))
      return failure{ec::internal, "all peers were killed"};
    show();
    if (kill_due_ && clock::now() - began_ >= options_.kill_after) {
      kill_due_ = false;
      // The first peer, through which all others joined, to show that no peer is special.
      auto& victim = *std::ranges::find_if(members_, alive);
      say("killing peer " + name_of(victim) + " with SIGKILL, the first one of the run");
      victim.peer->signal(SIGKILL);
      victim.seen.killed = true;
      ++summary_.kills;
    }
    if (join_due_ && clock::now() - began_ >= options_.join_after) {
      auto by = std::find_if(members_.rbegin(), members_.rend(), alive);
      if (by == members_.rend())
        return failure{ec::internal, "all peers were killed: there is no peer to join through"};
      join_due_ = false;
      auto line = by->peer->join_line;
      say("a new peer joins by the line that peer " + name_of(*by) + " printed:\n  " + line);
      ++summary_.joins;
      return start_peer(line);
    }
    return done{};
  }

  static std::string name_of(const member& m) {
    return m.seen.last.id.empty() ? "at " + to_string(m.peer->where) : short_name(m.seen);
  }

  static void look_at(member& m, milliseconds timeout) {
    auto answer = net::http_get(m.peer->where, "/api/v1/status", timeout);
    auto snapshot = answer ? parse_snapshot(answer->body) : std::nullopt;
    m.seen.silent = !snapshot;
    if (snapshot)
      m.seen.last = *snapshot;
  }

  /// Asks all living peers at once, so that one that hangs delays no other and the answers are of
  /// the same time.
  void look_at_all(milliseconds timeout) {
    std::vector<std::jthread> questions; // joined here: child_process needs a single thread
    for (auto& m : members_)
      if (!m.seen.killed)
        questions.emplace_back([&m, timeout] { look_at(m, timeout); });
  }

  [[nodiscard]] bool finished() const {
    if (options_.duration > 0ms && clock::now() - began_ >= options_.duration)
      return true;
    if (!options_.run_ends())
      return false;
    if (kill_due_ || join_due_)
      return false;
    return std::ranges::all_of(
      members_, [](const member& m) { return m.seen.killed || m.seen.last.phase == "finished"; });
  }

  void say(const std::string& what) {
    std::printf("[%5.0fs] %s\n", seconds(), what.c_str());
    std::fflush(stdout);
    lines_shown_ = 0;
  }

  [[nodiscard]] std::vector<swarm_summary::peer> peers_seen() const {
    std::vector<swarm_summary::peer> all;
    for (const auto& m : members_)
      all.push_back(m.seen);
    return all;
  }

  /// `at_once`: print even if the output is no terminal and the last table is less than 5 s old.
  void show(bool at_once = false) {
    auto room = terminal();
    if (!room) {
      if (!at_once && seconds() < next_line_)
        return;
      next_line_ = seconds() + 5;
    } else if (lines_shown_ > 0 && *room == drawn_in_) {
      std::printf("\r\x1b[%zuA", lines_shown_); // a ^C may stand before the cursor
    } // after a resize the terminal may have rewrapped the last table: draw the next one below it
    auto lines = live_table(seconds(), peers_seen(), room.value_or(no_terminal));
    for (const auto& line : lines)
      std::printf("%s%s\n", room ? "\r\x1b[2K" : "", line.c_str());
    if (room)
      std::printf("\x1b[J");
    std::fflush(stdout);
    lines_shown_ = lines.size();
    drawn_in_ = room.value_or(no_terminal);
  }

  // -- shutdown ----------------------------------------------------------------------------------

  /// Asks until all living peers are at the same epoch, so that their parameters can be compared.
  void compare_parameters() {
    for (auto until = clock::now() + 10s; clock::now() < until && !stopped_;) {
      look_at_all(question_timeout);
      summary_.peers = peers_seen();
      if (auto equal = summary_.compare_parameters()) {
        summary_.parameters_equal = equal;
        if (*equal)
          return; // otherwise a peer may just be loading the state of the others
      }
      stopped_ = told_to_end(100ms);
    }
  }

  void stop_all() {
    // What has not ended by then is killed, and its data is kept: nothing to report.
    std::ignore = swarm_.stop(stopped_ ? hurried_stop_timeout : stop_timeout, hurried_stop_timeout);
  }

  int end() {
    bool interrupted = stopped_;
    if (!interrupted && summary_.exact)
      compare_parameters();
    if (stopped_)
      look_at_all(last_question_timeout);
    summary_.peers = peers_seen();
    if (interrupted && summary_.compare_parameters() == true)
      summary_.parameters_equal = true; // if not, a peer may just be loading the others' state
    summary_.seconds = seconds();
    // The summary below shows the same moment as this table.
    show(true);
    stop_all();
    auto room = terminal();
    std::printf("\n%s", summary_.text(room ? room->columns - 1 : text_table::unlimited).c_str());
    std::fflush(stdout);
    auto last = options_.rounds_of_run();
    bool unknown =
      options_.passes > 0 || options_.strategy.ends(); // nobody knows it before the end
    for (const auto& p : summary_.peers)
      if (unknown && !p.killed && p.last.phase == "finished")
        last = p.last.epoch;
    auto differences =
      last > 0 && !stopped_ ? summary_.differences(last) : std::vector<std::string>{};
    for (const auto& difference : differences)
      std::cerr << "waggle: " << difference << "\n";
    if (options_.json_file) {
      std::ofstream out{*options_.json_file};
      out << summary_.json();
      if (!out.flush()) {
        std::cerr << "waggle: cannot write --json " << options_.json_file->string() << "\n";
        return exit_failed;
      }
    }
    return differences.empty() ? exit_clean : exit_failed;
  }

  int fail(const failure& why) {
    std::cerr << "waggle: " << why.detail << "\n";
    stop_all();
    return why.code == ec::bad_config ? exit_bad_usage : exit_failed;
  }

  run_options options_;
  fs::path folder_;
  local_swarm swarm_;
  std::vector<member> members_;
  swarm_summary summary_;
  clock::time_point began_ = clock::now();
  bool stopped_ = false;
  bool kill_due_ = options_.kill_after > 0ms;
  bool join_due_ = options_.join_after > 0ms;
  std::size_t lines_shown_ = 0; // of the table above the cursor
  terminal_size drawn_in_;
  double next_line_ = 0;
};

int run_swarm(const run_options& options) {
  hold_signals();
  return swarm{options}.run();
}

} // namespace

command swarm_command() {
  return {
    "swarm",
    "Several local peers of one run, a live table of them, a summary at the end.",
    "Takes the options of waggle train for all peers:\n"
    "  waggle swarm --peers 4 --epochs 100 --data /usr/share/common-licenses\n"
    "  waggle swarm --peers 4 --duration 2m --kill-after 40s --join-after 60s --json result.json\n",
    {"run", "training", "averaging", "swarm", "output"},
    {},
    run_swarm};
}

} // namespace waggle
