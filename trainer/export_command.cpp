#include "trainer/export_command.hpp"

#include <algorithm>
#include <cstring>
#include <iostream>
#include <sstream>

#include <fmt/format.h>
#include <torch/script.h>

#include "runtime/cli/trainer_program.hpp"
#include "runtime/config/options.hpp"
#include "runtime/training/checkpoint_store.hpp"
#include "runtime/training/safetensors.hpp"
#include "trainer/script_model.hpp"

namespace waggle {

namespace {

failure bad(std::string why) {
  return {ec::bad_config, std::move(why)};
}

/// "8 x 3".
std::string text_of_shape(const std::vector<std::uint64_t>& shape) {
  std::string out;
  for (auto size : shape)
    out += (out.empty() ? "" : " x ") + std::to_string(size);
  return out.empty() ? "one value" : out;
}

/// Copies the weights into the tensors of the module, which must be the same by name and shape.
status fill(const training_model::named_tensors& tensors, const std::vector<named_values>& weights,
            const std::string& model) {
  auto differs = [&](const std::string& how) {
    return bad("the checkpoint is of another model than --model " + model + ": " + how);
  };
  if (tensors.size() != weights.size())
    return differs(
      fmt::format("it has {} tensors, and the module {}", weights.size(), tensors.size()));
  torch::NoGradGuard guard;
  for (const auto& [name, tensor] : tensors) {
    auto found = std::find_if(weights.begin(), weights.end(),
                              [&name = name](const auto& w) { return w.name == name; });
    if (found == weights.end())
      return differs("it has no " + name);
    std::vector<std::uint64_t> shape(tensor.sizes().begin(), tensor.sizes().end());
    if (shape != found->shape)
      return differs(fmt::format("its {} is {}, and that of the module {}", name,
                                 text_of_shape(found->shape), text_of_shape(shape)));
    std::vector<float> values(found->values.size() / sizeof(float));
    std::memcpy(values.data(), found->values.data(), found->values.size());
    tensor.copy_(torch::from_blob(values.data(), tensor.sizes()));
  }
  return done{};
}

/// The bytes of the module of --model with these weights.
result<std::string> torchscript_file(const std::string& model,
                                     const std::vector<named_values>& weights) {
  if (!is_torchscript(model))
    return bad("--format torchscript needs --model FILE.pt, the module that the run trains: a "
               "built-in model has no TorchScript; use --format safetensors");
  auto module = load_module(model);
  if (!module)
    return module.error();
  auto tensors = trained_parameters(*module);
  for (auto& item : running_statistics(*module))
    tensors.push_back(std::move(item));
  if (auto filled = fill(tensors, weights, model); !filled)
    return filled.error();
  std::ostringstream out;
  module->save(out);
  return std::move(out).str();
}

result<epoch_id> export_model(const run_options& o, const std::filesystem::path& to) {
  auto files = make_system_disk();
  auto last = checkpoint_store{files, o.data_dir / "checkpoints"}.read_last();
  if (!last)
    return bad("--data-dir " + o.data_dir.string() + ": " + to_string(last.error()));
  auto state = decode_state(as_byte_span(last->image));
  auto damaged = [&](const failure& why) {
    return bad("cannot export " + last->file.string() + ": " + to_string(why));
  };
  if (!state)
    return damaged(state.error());
  auto table = read_state_table(state->learner);
  if (!table)
    return damaged(table.error());
  if (auto good = table->check(state->learner, state->schema); !good)
    return damaged(good.error());
  auto weights = weights_in(*table, state->learner);
  auto content = o.format == "torchscript" ? torchscript_file(o.model, weights)
                                           : safetensors_file(std::move(weights), last->epoch);
  if (!content)
    return content.error();
  if (auto written = files->write(to, {as_byte_span(*content)}); !written)
    return bad("cannot write " + to.string() + ": " + to_string(written.error()));
  return last->epoch;
}

int run_export(const run_options& options) {
  const auto& to = options.arguments.front();
  auto epoch = export_model(options, to);
  if (!epoch)
    return bad_usage(epoch.error().detail);
  std::cout << "epoch " << epoch->value() << " is in " << to << "\n";
  return exit_clean;
}

} // namespace

command export_command() {
  return export_entry(run_export);
}

} // namespace waggle
