// What `waggle plan` asks of a model: its size, and its pace on this machine.

#include <algorithm>
#include <filesystem>
#include <iostream>

#include <torch/script.h>

#include "runtime/config/options.hpp"
#include "runtime/core/try.hpp"
#include "trainer/models.hpp"
#include "trainer/plain_loop.hpp"
#include "trainer/script_model.hpp"
#include "trainer/train_command.hpp"

namespace waggle {

namespace {

result<model_facts> size_of(const learner_config& config, model_look how) {
  bool in_file = is_torchscript(config.model);
  std::error_code none;
  if (in_file && how == model_look::guess)
    if (auto bytes = std::filesystem::file_size(config.model, none); !none)
      return model_facts{.trained = bytes / sizeof(float)};
  WAGGLE_TRY(in, open_inputs(config));
  const auto& shape = in->data->shape();
  WAGGLE_TRY(usable, check_training_model(config, shape));
  if (!in_file)
    return model_facts{.trained = parameter_count(config, shape)};
  WAGGLE_TRY(module, load_module(config.model));
  model_facts out;
  for (const auto& item : trained_parameters(*module))
    out.trained += static_cast<std::uint64_t>(item.second.numel());
  for (const auto& parameter : module->parameters())
    if (!parameter.requires_grad())
      out.frozen += static_cast<std::uint64_t>(parameter.numel());
  return out;
}

} // namespace

result<model_facts> facts_of_model(const run_options& options, model_look how) {
  WAGGLE_TRY(usable, check_training_options(options));
  auto config = learner_from(options, {});
  auto out = size_of(config, how);
  if (!out || how != model_look::measure)
    return out;
  auto batch = static_cast<std::uint64_t>(config.micro_batch);
  std::cerr << "waggle: measuring passes of " << batch << " samples of " << config.model
            << ": two, and where these are short, more for about a second\n";
  auto measure = [&](std::uint64_t steps) -> status { // and one before them
    WAGGLE_TRY(loop, run_plain_loop(config, batch, options.lr, steps));
    out->step_seconds = loop->timing.seconds / static_cast<double>(steps);
    return done{};
  };
  auto measured = measure(1);
  if (measured && out->step_seconds < 0.5)
    measured = measure(static_cast<std::uint64_t>(std::clamp(1 / out->step_seconds, 1.0, 500.0)));
  if (!measured)
    return measured.error();
  return out;
}

} // namespace waggle
