// The loss of a checkpoint's parameters, without an update:
//
//   checkpoint_loss loss PATH --data held-out.txt --steps 50 --json loss.json
//
// PATH is a checkpoint, or the --data-dir of a peer for its newest one. The windows, --steps times
// --micro-batch, are drawn from --data with a fixed seed, so that all models with the same context
// are compared on the same ones.

#include <cstdio>

#include <nlohmann/json.hpp>

#include "runtime/cli/bench.hpp"
#include "runtime/core/try.hpp"
#include "trainer/train_command.hpp"
#include "trainer/training_model.hpp"

namespace {

using namespace waggle;
namespace fs = std::filesystem;

result<std::string> image_at(const fs::path& where) {
  if (!fs::is_directory(where))
    return make_system_disk()->read(where, checkpoint_store::image_bytes_max);
  auto last = last_checkpoint(where);
  return last ? result<std::string>{std::move(last->image)} : last.error();
}

result<nlohmann::ordered_json> loss_of(const run_options& options) {
  constexpr std::uint64_t windows_seed = 0x68656c646f7574; // any, but always the same
  auto config = learner_from(options, {});
  config.eval_data.clear(); // these two are for training
  config.format = precision::float32;
  WAGGLE_TRY(in, open_inputs(config));
  const auto& shape = in->data->shape();
  WAGGLE_TRY(made, make_training_model(config, shape));
  auto& model = **made;
  WAGGLE_TRY(image, image_at(options.arguments.front()));
  WAGGLE_TRY(weights, weights_in(as_byte_span(*image)));
  auto tensors = model.parameters();
  for (auto& buffer : model.buffers())
    tensors.push_back(std::move(buffer));
  WAGGLE_TRY(loaded, load_weights(tensors, weights->tensors, config.model));
  const auto& device = in->devices.front();
  model.to(device);
  model.train(false);
  set_threads(config.threads);
  window_sampler sampler{in->data, window_of(shape, static_cast<std::size_t>(config.context)),
                         random_source{windows_seed}};
  double sum = 0;
  for (std::uint64_t i = 0; i < options.steps; ++i) {
    WAGGLE_TRY(samples, next_batch(sampler, config.micro_batch, device));
    sum += model.measure(*samples).loss;
  }
  return nlohmann::ordered_json{
    {"loss", sum / static_cast<double>(options.steps)},
    {"windows", options.steps * static_cast<std::uint64_t>(config.micro_batch)},
    {"epoch", weights->epoch.value()}};
}

int measure(const run_options& options) {
  auto output = bench_output::open(options);
  if (!output)
    return bad_usage(output.error().detail);
  auto report = loss_of(options);
  if (!report)
    return bad_usage(options.arguments.front() + ": " + to_string(report.error()));
  std::printf("%s\n", report->dump().c_str());
  return (*output)->write(*report);
}

} // namespace

int main(int argc, char** argv) {
  return run_command_line(argc, argv,
                          {{.name = "loss",
                            .summary = "The loss of a checkpoint.",
                            .details = "",
                            .groups = {"training", "output", "bench"},
                            .arguments = {{"PATH", "A checkpoint, or a peer's --data-dir."}},
                            .run = measure}});
}
