#include "runtime/cli/compare_strategies.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <set>
#include <utility>

#include <nlohmann/json.hpp>
#include <spdlog/fmt/fmt.h>
#include <sys/wait.h>

#include "runtime/cli/bench.hpp"
#include "runtime/cli/local_swarm.hpp"
#include "runtime/cli/scratch_folder.hpp"
#include "runtime/cli/signals.hpp"
#include "runtime/cli/strategy_comparison.hpp"
#include "runtime/config/options.hpp"
#include "runtime/net/http_client.hpp"
#include "runtime/training/strategy.hpp"

namespace waggle {

namespace {

namespace fs = std::filesystem;
using json = nlohmann::ordered_json;
using clock = std::chrono::steady_clock;
using words = std::vector<std::string>;

constexpr auto start_timeout = 60s;
constexpr auto question_timeout = 1s;
constexpr auto reading_interval = 100ms;
constexpr milliseconds stop_timeout = 30s; // longer than --shutdown-timeout on a busy machine
constexpr double patience = 20;            // times the plain loop's time

double seconds_now() {
  return std::chrono::duration<double>(clock::now().time_since_epoch()).count();
}

/// Peak resident bytes of a process that still runs; 0 if it does not.
double peak_of(pid_t pid) {
  std::ifstream in{"/proc/" + std::to_string(pid) + "/status"};
  for (std::string line; std::getline(in, line);)
    if (line.starts_with("VmHWM:"))
      return std::stod(line.substr(6)) * 1024;
  return 0;
}

/// Fails if a peer does not end by itself: its checkpoint may be missing. The exit code says
/// nothing: a peer also fails if another one, asked to stop, left just before it.
status stop(local_swarm& swarm) {
  if (auto ended = swarm.stop(stop_timeout, 0ms); !ended)
    return ended;
  for (auto& peer : swarm.peers())
    if (!WIFEXITED(*peer.ended()))
      return peer.ended_early();
  return done{};
}

class comparison {
public:
  comparison(const run_options& options, fs::path folder, std::string program)
    : options_(options), folder_(std::move(folder)), program_(std::move(program)) {}

  /// Fails with ec::cancelled if this program was told to stop, or with the reason.
  result<strategy_result> measure(const strategy_case& row) {
    // Those that ran after the row before, if they were the same.
    auto before = std::exchange(newest_loops_, {});
    auto loop =
      before.commands == loops_of(row) ? result<loop_reading>{before.measured} : run_loops(row);
    if (!loop)
      return loop.error();
    fmt::print(stderr, "{}: {} epochs\n", row.name, row.epochs);
    auto home = folder_ / std::to_string(++rows_);
    fs::create_directories(home);
    local_swarm peers;
    auto runs = train(row, home, *loop, peers);
    auto stopped = stop(peers);
    if (!runs)
      return runs.error();
    if (!stopped)
      return stopped.error();
    auto again = run_loops(row);
    if (!again)
      return again.error();
    // The speed of a machine drifts within a minute: the loops run before the swarm and after it.
    loop->samples_per_second = (loop->samples_per_second + again->samples_per_second) / 2;
    loop->peak_bytes = (loop->peak_bytes + again->peak_bytes) / 2;
    auto measured = result_of(row, *runs, *loop, seconds_of(options_.step_interval));
    auto loss = loss_of(row, home / "peer-0");
    if (!loss)
      return failure{loss.error().code, loss.error().detail + "\nThe log of the peer says:\n"
                                          + peers.peers().front().end_of_log()};
    measured.loss = *loss;
    return measured;
  }

private:
  /// The options that were given and that the rows do not set, as words.
  [[nodiscard]] words given(const strategy_case& row, const std::string& except = {}) const {
    std::set<std::string> own{
      "min-peers", "linger", "shared-memory", "target-batch-size", "averaging-steps-period",
      "epochs"};
    for (const auto& word : row.arguments)
      if (word.starts_with("--"))
        own.insert(word.substr(2));
    if (!find_strategy(row.arguments[1])->optimizer.empty())
      own.insert("optimizer"); // it is for this optimizer only
    own.insert(except);
    words out;
    for (const auto& [name, value] : options_.given) {
      const auto& group = find_option(name)->group;
      if ((group == "training" || group == "averaging") && !own.contains(name))
        out.insert(out.end(), {"--" + name, value});
    }
    return out;
  }

  [[nodiscard]] std::string optimizer_of_row(const strategy_case& row) const {
    auto only = find_strategy(row.arguments[1])->optimizer;
    return only.empty() ? options_.optimizer : std::string{only};
  }

  /// A command of this program.
  [[nodiscard]] words command(std::initializer_list<words> parts) const {
    words all{program_};
    for (const auto& part : parts)
      all.insert(all.end(), part.begin(), part.end());
    return all;
  }

  /// Runs the commands at the same time. They write their result to the file that is the last word.
  result<std::vector<json>> run_all(const std::vector<words>& commands, double limit) {
    std::vector<child_process> all;
    for (const auto& c : commands) {
      auto made = child_process::start(c, fs::path{c.back()}.replace_extension(".log"));
      if (!made)
        return made.error();
      all.push_back(std::move(*made));
    }
    auto until = seconds_now() + limit;
    std::size_t over = 0;
    while (over < all.size()) {
      if (told_to_end(20ms))
        return failure{ec::cancelled, "interrupted"};
      if (seconds_now() > until)
        return failure{ec::timeout, "a process took longer than " + std::to_string(limit) + " s"};
      over = 0;
      for (auto& one : all)
        if (auto status = one.ended()) {
          if (!WIFEXITED(*status) || WEXITSTATUS(*status) != exit_clean)
            return one.ended_early();
          ++over;
        }
    }
    std::vector<json> out;
    for (const auto& c : commands) {
      out.push_back(json::parse(content_of(c.back()), nullptr, false));
      if (!out.back().is_object())
        return failure{ec::internal, c.back() + " is no JSON"};
    }
    return out;
  }

  struct loops {
    std::vector<words> commands;
    loop_reading measured;
  };

  /// The commands of as many plain loops as there are peers, which step as often as those.
  [[nodiscard]] std::vector<words> loops_of(const strategy_case& row) const {
    auto share = row.steps_each_pass ? options_.micro_batch
                                     : options_.target_batch_size / options_.peers
                                         / options_.micro_batch * options_.micro_batch;
    std::vector<words> commands;
    for (std::uint64_t i = 0; i < options_.peers; ++i)
      commands.push_back(
        command({{"bench", "loop", "--target-batch-size", std::to_string(share), "--steps",
                  std::to_string(options_.steps), "--optimizer", optimizer_of_row(row)},
                 given(row, "optimizer"),
                 {"--json", (folder_ / ("loop-" + std::to_string(i) + ".json")).string()}}));
    return commands;
  }

  /// The plain loops of this row, all at once.
  result<loop_reading> run_loops(const strategy_case& row) {
    fmt::print(stderr, "{} plain loops that step {}\n", options_.peers,
               row.steps_each_pass ? "after each pass" : "once per epoch");
    auto commands = loops_of(row);
    auto measured = run_all(commands, loop_limit());
    if (!measured)
      return measured.error();
    loop_reading mean;
    auto n = static_cast<double>(measured->size());
    for (const auto& one : *measured) {
      mean.samples_per_second += one.value("samples_per_second", 0.0) / n;
      mean.peak_bytes += one.value("peak_bytes", 0.0) / n;
    }
    if (mean.samples_per_second <= 0)
      return failure{ec::internal, "the plain loop reported no speed"};
    newest_loops_ = {std::move(commands), mean};
    return mean;
  }

  /// A pass is not expected to take longer than a second.
  [[nodiscard]] double loop_limit() const {
    return seconds_of(start_timeout)
           + static_cast<double>(options_.steps) * (1 + seconds_of(options_.step_interval));
  }

  result<double> loss_of(const strategy_case& row, const fs::path& peer) {
    auto file = (peer.parent_path() / "loss.json").string();
    // As many windows as a plain loop trains on: the mean over the default number has an error of
    // some hundredths with a model that predicts one byte of each window.
    auto measured = run_all({command({{"bench", "loss", "--checkpoint", peer.string(), "--steps",
                                       std::to_string(options_.steps)},
                                      given(row),
                                      row.arguments,
                                      {"--json", file}})},
                            loop_limit());
    if (!measured)
      return measured.error();
    return measured->front().value("loss", std::nan(""));
  }

  // -- a swarm -----------------------------------------------------------------------------------

  result<std::vector<peer_run>> train(const strategy_case& row, const fs::path& home,
                                      const loop_reading& loop, local_swarm& swarm) {
    for (std::uint64_t i = 0; i < options_.peers; ++i) {
      auto name = "peer-" + std::to_string(i);
      words own{"--listen",        "127.0.0.1:0",
                "--data-dir",      (home / name).string(),
                "--run-id",        "bench",
                "--seed",          std::to_string(i + 1),
                "--linger",        "1h",
                "--shared-memory", "false",
                "--min-peers",     std::to_string(options_.peers)};
      if (i > 0)
        own.insert(own.end(), {"--initial-peers", to_string(swarm.peers().front().where)});
      auto started =
        swarm.start(command({{"train"}, given(row), own, row.arguments}), home / (name + ".log"));
      if (!started)
        return started.error();
    }
    auto samples = static_cast<double>(options_.steps * options_.micro_batch);
    auto limit = seconds_of(start_timeout) + patience * samples / loop.samples_per_second;
    return watch(row, swarm.peers(), limit);
  }

  /// Reads all peers until they have reached the last epoch.
  result<std::vector<peer_run>> watch(const strategy_case& row, std::deque<local_peer>& peers,
                                      double limit) {
    auto last_epoch = static_cast<double>(row.epochs);
    std::vector<peer_run> runs(peers.size());
    auto until = seconds_now() + limit;
    for (bool done = false; !done;) {
      if (told_to_end(reading_interval))
        return failure{ec::cancelled, "interrupted"};
      if (seconds_now() > until)
        return failure{ec::timeout, "the peers did not reach the last epoch in time"};
      done = true;
      for (std::size_t i = 0; i < peers.size(); ++i) {
        if (peers[i].ended())
          return peers[i].ended_early();
        auto answer = net::http_get(peers[i].where, "/metrics", question_timeout);
        if (!answer) { // a busy machine; asked again
          done = false;
          continue;
        }
        auto read = reading_of(answer->body, seconds_now());
        auto& run = runs[i];
        run.samples = read.samples;
        run.peak_bytes = peak_of(peers[i].pid());
        if (read.epoch >= last_epoch)
          continue;
        done = false;
        if (read.epoch >= 1 && run.first.at == 0)
          run.first = read;
        else if (run.first.at != 0)
          run.last = read;
      }
    }
    for (const auto& run : runs)
      if (run.last.epoch <= run.first.epoch)
        return failure{ec::bad_config,
                       "the run was over before it could be measured: raise --steps"};
    return runs;
  }

  const run_options& options_;
  const fs::path folder_;
  const std::string program_;
  std::size_t rows_ = 0;
  loops newest_loops_; // that ran after the last row; none if it failed
};

} // namespace

int compare_strategies(const run_options& asked) {
  hold_signals();
  auto options = asked;
  if (!options.given.contains("steps"))
    options.steps = 1024; // per row: some seconds, even with a small model
  auto rows = strategy_cases(options);
  if (!rows)
    return bad_usage(rows.error().detail);
  auto output = bench_output::open(options);
  if (!output)
    return bad_usage(output.error().detail);
  auto folder = scratch_folder::make();
  if (!folder)
    return bad_usage(folder.error().detail);
  std::error_code unreadable;
  auto self = fs::read_symlink("/proc/self/exe", unreadable);
  if (unreadable)
    return bad_usage("cannot find this program: " + unreadable.message());

  comparison all{options, (*folder)->path(), self.string()};
  std::vector<strategy_result> measured;
  auto report = json::array();
  int code = exit_clean;
  for (const auto& row : *rows) {
    auto one = all.measure(row);
    if (!one) {
      fmt::print(stderr, "waggle: {}: {}\n", row.name, one.error().detail);
      code = exit_failed;
      if (one.error().code == ec::cancelled)
        break;
      continue;
    }
    report.push_back(to_json(*one));
    measured.push_back(std::move(*one));
  }
  fmt::print("{} peers on this machine over TCP, {} passes of {} samples each\n", options.peers,
             options.steps, options.micro_batch);
  for (const auto& line : comparison_table(measured))
    fmt::print("{}\n", line);
  std::fflush(stdout);
  auto written = (*output)->write(report);
  return code == exit_clean ? written : code;
}

} // namespace waggle
