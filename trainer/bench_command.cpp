// `waggle bench train` and `loop`.

#include <atomic>
#include <cstdio>
#include <filesystem>
#include <optional>

#include <nlohmann/json.hpp>
#include <sys/resource.h>

#include "actors/program/peer_process.hpp"
#include "runtime/cli/bench.hpp"
#include "runtime/cli/scratch_folder.hpp"
#include "runtime/cli/trainer_program.hpp"
#include "runtime/core/try.hpp"
#include "runtime/training/learner_layer.hpp"
#include "runtime/training/strategy.hpp"
#include "trainer/plain_loop.hpp"
#include "trainer/train_command.hpp"
#include "trainer/training_model.hpp"

namespace waggle {

namespace {

namespace fs = std::filesystem;
using json = nlohmann::ordered_json;

// -- train: whether a peer is as fast as a plain training loop. Runs one peer of its own run, with
// all that a peer does (DHT, progress, metrics, checkpoints), and the plain loop alternately in one
// process.

/// Number of pairs of runs. The speed of a machine drifts by 10 % within a minute, so many short
/// pairs are better than a few long ones: both runs of a short pair have the same speed.
constexpr int iterations = 15;

/// The time from the first optimizer step (the warm-up) to the last one. Written by the trainer's
/// thread before it sets `done`, read by other threads afterwards.
struct step_timer {
  std::uint64_t steps = 0; // after the warm-up
  std::uint64_t seen = 0;
  bench_stopwatch since_first;
  bench_timing taken;
  std::atomic<bool> done{false};

  void mark() {
    if (seen == 0)
      since_first = {};
    if (seen == steps) {
      taken = since_first.elapsed();
      done = true;
    }
    ++seen;
  }
};

/// Times the optimizer steps of the learner below.
class timed_learner final : public learner_layer {
public:
  timed_learner(std::unique_ptr<learner> below, std::shared_ptr<step_timer> timer)
    : learner_layer(std::move(below)), timer_(std::move(timer)) {}

protected:
  void after_update() override { timer_->mark(); }

private:
  const std::shared_ptr<step_timer> timer_;
};

/// One run of one peer, from its start to its regular end.
result<bench_timing> run_peer(peer_process& process, const run_options& options,
                              const fs::path& folder, std::uint64_t steps) {
  auto timer = std::make_shared<step_timer>();
  timer->steps = steps;
  auto config = process.base_config();
  add_training(config, options, process.self().id(), folder);
  config.training->make_learner = layered<timed_learner>(config.training->make_learner, "", timer);
  WAGGLE_TRY(peer, process.start(config));
  process.print_start(config, *peer, false);
  auto exit_code = process.run_until_done(*peer, [&] { return timer->done.load(); });
  if (exit_code != exit_clean)
    return failure{ec::internal, "the peer failed before its steps were done: see above"};
  if (!timer->done)
    return failure{ec::cancelled, "interrupted before the steps of the peer were done"};
  return timer->taken;
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
    return failure{ec::bad_config,
                   "--min-peers " + std::to_string(o.min_peers)
                     + ": this measures a swarm of one peer, which would wait for the others for "
                       "ever; leave it out"};
  if (o.auxiliary)
    return failure{ec::bad_config, "--auxiliary: this measures a peer that makes passes, and an "
                                   "auxiliary makes none; leave it out"};
  return done{};
}

int bench_train(run_options options) {
  auto config = learner_from(options, {});
  if (auto usable = check_learner_config(config); !usable)
    return bad_usage(usable.error().detail);
  if (auto usable = check_bench_options(options); !usable)
    return bad_usage(usable.error().detail);
  auto output = bench_output::open(options);
  if (!output)
    return bad_usage(output.error().detail);
  const auto& strategy = *options.strategy;
  auto batch = strategy.steps_each_pass() || strategy.counts_steps()
                 ? static_cast<std::uint64_t>(options.micro_batch)
                 : options.target_batch_size; // of a step
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
  options.epochs = (steps + 1) * options.how.epochs_per_round;
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
    plain.push_back(loop->timing);
    swarm.push_back(*peer);
    ratios.push_back(loop->timing.seconds / peer->seconds);
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
  report["micro_batch"] = options.micro_batch;
  report["options"] = options.given;
  print(report);
  return (*output)->write(report);
}

// -- loop: the plain loop alone

/// Of this process, resident.
double peak_bytes() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<double>(usage.ru_maxrss) * 1024;
}

int bench_loop(const run_options& options) {
  auto config = learner_from(options, {});
  auto output = bench_output::open(options);
  if (!output)
    return bad_usage(output.error().detail);
  auto passes = micro_steps_of(options.target_batch_size, config.micro_batch);
  auto steps = (options.steps + passes - 1) / passes;
  auto loop =
    run_plain_loop(config, options.target_batch_size, options.lr, steps, options.step_interval);
  if (!loop)
    return bad_usage(loop.error().detail);
  auto samples = static_cast<double>(loop->micro_steps) * static_cast<double>(options.micro_batch);
  json report{{"name", "loop"},
              {"samples_per_second", samples / loop->timing.seconds},
              {"samples", samples},
              {"seconds", loop->timing.seconds},
              {"cpu_seconds", loop->timing.cpu_seconds},
              {"peak_bytes", peak_bytes()}};
  std::printf("%.0f samples in %.3f s: %.1f samples/s, %.1f MB resident at most\n", samples,
              loop->timing.seconds, samples / loop->timing.seconds, peak_bytes() / 1e6);
  return (*output)->write(report);
}

} // namespace

std::vector<bench_entry> train_benchmarks() {
  return train_benchmark_entries([](const run_options& options) {
    return options.arguments.front() == "loop" ? bench_loop(options) : bench_train(options);
  });
}

} // namespace waggle
