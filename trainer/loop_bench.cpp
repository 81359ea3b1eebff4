#include "trainer/loop_bench.hpp"

#include <cstdio>

#include <nlohmann/json.hpp>
#include <sys/resource.h>

#include "runtime/cli/bench.hpp"
#include "trainer/held_out_loss.hpp"
#include "trainer/plain_loop.hpp"
#include "trainer/train_command.hpp"

namespace waggle {

namespace {

using json = nlohmann::ordered_json;

/// Of this process, resident.
double peak_bytes() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<double>(usage.ru_maxrss) * 1024;
}

} // namespace

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
  auto samples = static_cast<double>(loop->micro_steps * options.micro_batch);
  json report{{"name", "loop"},
              {"samples_per_second", samples / loop->seconds},
              {"samples", samples},
              {"seconds", loop->seconds},
              {"cpu_seconds", loop->cpu_seconds},
              {"peak_bytes", peak_bytes()}};
  std::printf("%.0f samples in %.3f s: %.1f samples/s, %.1f MB resident at most\n", samples,
              loop->seconds, samples / loop->seconds, peak_bytes() / 1e6);
  return (*output)->write(report);
}

int bench_loss(const run_options& options) {
  if (!options.checkpoint)
    return bad_usage("waggle bench loss needs --checkpoint: a file, or the --data-dir of a peer");
  auto output = bench_output::open(options);
  if (!output)
    return bad_usage(output.error().detail);
  auto measured = loss_of_checkpoint(learner_from(options, {}), learner_factory_from(options, {}),
                                     *options.checkpoint, options.steps);
  if (!measured)
    return bad_usage(measured.error().detail);
  json report{{"name", "loss"},
              {"loss", measured->loss},
              {"windows", measured->windows},
              {"epoch", measured->epoch.value()}};
  std::printf("loss %.4f of the checkpoint of epoch %llu, over %llu windows\n", measured->loss,
              static_cast<unsigned long long>(measured->epoch.value()),
              static_cast<unsigned long long>(measured->windows));
  return (*output)->write(report);
}

} // namespace waggle
