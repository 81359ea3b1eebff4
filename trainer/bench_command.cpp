// Measures whether a peer is as fast as a plain training loop. Runs one peer of its own run, with
// all that a peer does (DHT, progress, metrics, checkpoints), and the plain loop alternately in one
// process.

#include <atomic>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <optional>

#include <nlohmann/json.hpp>

#include "actors/program/peer_process.hpp"
#include "runtime/cli/bench.hpp"
#include "runtime/cli/compare_strategies.hpp"
#include "runtime/cli/scratch_folder.hpp"
#include "runtime/cli/trainer_program.hpp"
#include "runtime/training/learner_layer.hpp"
#include "runtime/training/strategy.hpp"
#include "trainer/loop_bench.hpp"
#include "trainer/plain_loop.hpp"
#include "trainer/train_command.hpp"

namespace waggle {

namespace {

namespace fs = std::filesystem;
using json = nlohmann::ordered_json;

/// Number of pairs of runs. The speed of a machine drifts by 10 % within a minute, so many short
/// pairs are better than a few long ones: both runs of a short pair have the same speed.
constexpr int iterations = 15;

/// The times of the first optimizer step (the warm-up) and of the last one. Written by the
/// trainer's thread before it sets `done`, read by other threads afterwards.
struct stopwatch {
  std::uint64_t steps = 0; // after the warm-up
  std::uint64_t seen = 0;
  std::chrono::steady_clock::time_point began;
  std::chrono::steady_clock::time_point ended;
  double cpu_began = 0;
  double cpu_ended = 0;
  std::atomic<bool> done{false};

  void mark() {
    if (seen == 0) {
      began = std::chrono::steady_clock::now();
      cpu_began = process_cpu_seconds();
    }
    if (seen == steps) {
      ended = std::chrono::steady_clock::now();
      cpu_ended = process_cpu_seconds();
      done = true;
    }
    ++seen;
  }
};

/// Times the optimizer steps of the learner below.
class timed_learner final : public learner_layer {
public:
  timed_learner(std::unique_ptr<learner> below, std::shared_ptr<stopwatch> watch)
    : learner_layer(std::move(below)), watch_(std::move(watch)) {}

protected:
  void after_update() override { watch_->mark(); }

private:
  const std::shared_ptr<stopwatch> watch_;
};

/// One run of one peer, from its start to its regular end.
result<bench_timing> run_peer(peer_process& process, const run_options& options,
                              const fs::path& folder, std::uint64_t steps) {
  auto watch = std::make_shared<stopwatch>();
  watch->steps = steps;
  auto config = process.base_config();
  add_training(config, options, process.self().id(), folder);
  config.training->make_learner = layered<timed_learner>(config.training->make_learner, "", watch);
  auto peer = process.start(config);
  if (!peer)
    return peer.error();
  process.print_start(config, *peer, false);
  auto exit_code = process.run_until_done(*peer, [&] { return watch->done.load(); });
  if (exit_code != exit_clean)
    return failure{ec::internal, "the peer failed before its steps were done: see above"};
  if (!watch->done)
    return failure{ec::cancelled, "interrupted before the steps of the peer were done"};
  return bench_timing{std::chrono::duration<double>(watch->ended - watch->began).count(),
                      watch->cpu_ended - watch->cpu_began};
}

json train_summary(const std::vector<bench_timing>& runs, std::uint64_t micro_steps) {
  auto report = summary_of(runs);
  report["steps_per_second"] =
    static_cast<double>(micro_steps) / report["median_seconds"].get<double>();
  return report;
}

void print(const json& report) {
  auto line = [](const char* name, const json& side) {
    std::printf("%-22s %9.3f s  (%.3f … %.3f)  %8.1f steps/s  %7.3f s CPU\n", name,
                side["median_seconds"].get<double>(), side["p25_seconds"].get<double>(),
                side["p75_seconds"].get<double>(), side["steps_per_second"].get<double>(),
                side["cpu_seconds"].get<double>());
  };
  std::printf(
    "%llu passes of %llu samples, %llu optimizer steps, median of %d runs each (quartiles)\n",
    report["steps"].get<unsigned long long>(), report["micro_batch"].get<unsigned long long>(),
    report["optimizer_steps"].get<unsigned long long>(), iterations);
  line("plain loop", report["plain"]);
  line("swarm of one peer", report);
  std::printf("the peer reaches %.3f (%.3f … %.3f) of the plain loop's steps per second\n",
              report["ratio"].get<double>(), report["ratio_p25"].get<double>(),
              report["ratio_p75"].get<double>());
}

/// Of a swarm of one peer, which must train.
status check_bench_options(const run_options& o) {
  if (o.min_peers > 1 && o.wait_for_peers == 0ms)
    return failure{
      ec::bad_config,
      "--min-peers " + std::to_string(o.min_peers)
        + ": this measures a swarm of one peer, which would wait for the others for "
          "ever; leave it out, or compare swarms of --peers peers with --strategy all"};
  if (o.auxiliary)
    return failure{ec::bad_config, "--auxiliary: this measures a peer that makes passes, and an "
                                   "auxiliary makes none; leave it out"};
  return done{};
}

int bench_train(run_options options) {
  auto config = learner_from(options, {});
  if (auto usable = check_learner_config(config); !usable)
    return bad_usage(usable.error().detail);
  if (auto asked = options.given.find("strategy");
      asked != options.given.end() && asked->second == "all")
    return compare_strategies(options);
  if (auto usable = check_bench_options(options); !usable)
    return bad_usage(usable.error().detail);
  auto output = bench_output::open(options);
  if (!output)
    return bad_usage(output.error().detail);
  const auto* strategy = find_strategy(options.strategy);
  bool steps_each_pass = strategy->steps_each_pass() || strategy->counts_steps;
  auto batch = steps_each_pass ? options.micro_batch : options.target_batch_size; // of a step
  auto passes = micro_steps_of(batch, config.micro_batch);
  // Measure whole optimizer steps, so that both sides do the same work.
  auto steps = (options.steps + passes - 1) / passes;
  auto folder = scratch_folder::make();
  if (!folder)
    return bad_usage(folder.error().detail);
  options.data_dir = (*folder)->path();
  options.given["data-dir"] = options.data_dir.string();
  options.listen = {{"127.0.0.1", 0}};
  options.log_level = "warn";
  options.initial_peers.clear();
  // The steps and the warm-up; where an epoch is a number of rounds, each round has a pass.
  options.epochs = (steps + 1) * options.average_state_every;
  auto process = peer_process::prepare(options);
  if (!process)
    return bad_usage(process.error().detail);

  std::vector<bench_timing> plain;
  std::vector<bench_timing> swarm;
  std::vector<double> ratios;
  for (int i = 0; i < iterations; ++i) {
    auto run = [&] {
      return run_peer(**process, options, (*folder)->path() / ("run-" + std::to_string(i)), steps);
    };
    auto peer_first = i % 2 == 1 ? std::optional{run()} : std::nullopt;
    auto loop = run_plain_loop(config, batch, options.lr, steps, options.step_interval);
    if (!loop)
      return bad_usage(loop.error().detail);
    auto peer = peer_first ? std::move(*peer_first) : run();
    if (!peer) {
      std::fprintf(stderr, "waggle: %s\n", peer.error().detail.c_str());
      return exit_failed;
    }
    plain.push_back({loop->seconds, loop->cpu_seconds});
    swarm.push_back(*peer);
    ratios.push_back(loop->seconds / peer->seconds);
  }

  auto micro_steps = steps * passes;
  json report{{"name", "train"}};
  report.update(train_summary(swarm, micro_steps));
  report["plain"] = train_summary(plain, micro_steps);
  // The ratio of each pair, not of the medians, so that drift between pairs cancels.
  report["ratio"] = quantile(ratios, 0.5);
  report["ratio_p25"] = quantile(ratios, 0.25);
  report["ratio_p75"] = quantile(ratios, 0.75);
  report["ratios"] = ratios;
  report["steps"] = micro_steps;
  report["optimizer_steps"] = steps;
  report["target_batch_size"] = options.target_batch_size;
  report["micro_batch"] = options.micro_batch;
  report["strategy"] = options.strategy;
  report["model"] = options.model;
  report["layers"] = options.layers;
  report["width"] = options.width;
  report["heads"] = options.heads;
  report["context"] = options.context;
  report["data"] = options.data;
  report["optimizer"] = options.optimizer;
  report["device"] = options.device;
  report["threads"] = options.threads;
  report["checkpoints"] = options.resume;
  print(report);
  return (*output)->write(report);
}

} // namespace

std::vector<bench_entry> train_benchmarks() {
  return train_benchmark_entries([](const run_options& options) {
    const auto& name = options.arguments.front();
    if (name == "loop")
      return bench_loop(options);
    return name == "loss" ? bench_loss(options) : bench_train(options);
  });
}

} // namespace waggle
