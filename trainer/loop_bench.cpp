#include "trainer/loop_bench.hpp"

#include <cstdio>
#include <filesystem>

#include <nlohmann/json.hpp>
#include <sys/resource.h>

#include "runtime/cli/bench.hpp"
#include "runtime/training/checkpoint_store.hpp"
#include "trainer/plain_loop.hpp"
#include "trainer/train_command.hpp"
#include "trainer/training_model.hpp"

namespace waggle {

namespace {

namespace fs = std::filesystem;
using json = nlohmann::ordered_json;

/// Of this process, resident.
double peak_bytes() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<double>(usage.ru_maxrss) * 1024;
}

result<std::string> image_at(const fs::path& where) {
  auto files = make_system_disk();
  std::error_code error;
  if (!fs::is_directory(where, error))
    return files->read(where, checkpoint_store::image_bytes_max);
  auto folder = fs::is_directory(where / "checkpoints", error) ? where / "checkpoints" : where;
  auto last = checkpoint_store{files, folder}.read_last();
  return last ? result<std::string>{std::move(last->image)} : last.error();
}

/// The loss of a checkpoint's parameters, without an update: of a file, or of the newest one in a
/// folder or a peer's --data-dir. The windows, `batches` times micro_batch, are drawn from the data
/// with a fixed seed: all models with the same context are compared on the same ones. (They were
/// not kept from training. Use a text that no peer trains on to measure that.)
result<json> loss_of_checkpoint(const learner_config& config, const fs::path& where,
                                std::uint64_t batches) {
  constexpr std::uint64_t windows_seed = 0x68656c646f7574; // any, but always the same
  auto bad = [&](const failure& why) {
    return failure{ec::bad_config, "--checkpoint " + where.string() + ": " + to_string(why)};
  };
  auto device = device_of(config.device);
  if (!device)
    return device.error();
  auto data = open_data(config);
  if (!data)
    return data.error();
  auto made = make_training_model(config, (*data)->shape());
  if (!made)
    return made.error();
  auto& model = **made;
  auto image = image_at(where);
  if (!image)
    return bad(image.error());
  auto weights = weights_in(as_byte_span(*image));
  if (!weights)
    return bad(weights.error());
  auto tensors = model.parameters();
  for (auto& buffer : model.buffers())
    tensors.push_back(std::move(buffer));
  if (auto loaded = load_weights(tensors, weights->tensors, config.model); !loaded)
    return bad(loaded.error());
  model.to(*device);
  model.train(false);
  set_threads(config.threads);
  window_sampler sampler{*data,
                         window_of((*data)->shape(), static_cast<std::size_t>(config.context)),
                         random_source{windows_seed}};
  double sum = 0;
  for (std::uint64_t i = 0; i < batches; ++i) {
    auto samples = next_batch(sampler, config.micro_batch, *device);
    if (!samples)
      return samples.error();
    sum += model.measure(*samples).loss;
  }
  return json{{"name", "loss"},
              {"loss", sum / static_cast<double>(batches)},
              {"windows", batches * static_cast<std::uint64_t>(config.micro_batch)},
              {"epoch", weights->epoch.value()}};
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
  auto report = loss_of_checkpoint(learner_from(options, {}), *options.checkpoint, options.steps);
  if (!report)
    return bad_usage(report.error().detail);
  std::printf("loss %.4f of the checkpoint of epoch %llu, over %llu windows\n",
              report->at("loss").get<double>(), report->at("epoch").get<unsigned long long>(),
              report->at("windows").get<unsigned long long>());
  return (*output)->write(*report);
}

} // namespace waggle
