#include <iostream>
#include <sstream>

#include <torch/script.h>

#include "runtime/cli/trainer_program.hpp"
#include "runtime/config/options.hpp"
#include "runtime/core/named.hpp"
#include "runtime/core/try.hpp"
#include "runtime/training/safetensors.hpp"
#include "trainer/script_model.hpp"
#include "trainer/train_command.hpp"

namespace waggle {

namespace {

failure bad(std::string why) {
  return {ec::bad_config, std::move(why)};
}

/// The bytes of the module of --model with these weights.
result<std::string> torchscript_file(const std::string& model,
                                     const std::vector<named_values>& weights) {
  if (!is_torchscript(model))
    return bad("--format torchscript needs --model FILE.pt, the module that the run trains: a "
               "built-in model has no TorchScript; use --format safetensors");
  WAGGLE_TRY(module, load_module(model));
  auto tensors = trained_parameters(*module);
  for (auto& item : exchanged_buffers(*module))
    if (find_named(weights, item.first) != nullptr)
      tensors.push_back(std::move(item));
  WAGGLE_TRY(filled, load_weights(tensors, weights, model));
  std::ostringstream out;
  module->save(out);
  return std::move(out).str();
}

result<epoch_id> export_model(const run_options& o, const std::filesystem::path& to) {
  auto files = make_system_disk();
  auto last = last_checkpoint(o.data_dir);
  if (!last)
    return bad("--data-dir " + o.data_dir.string() + ": " + to_string(last.error()));
  auto weights = weights_in(as_byte_span(last->image));
  if (!weights)
    return bad("cannot export " + last->file.string() + ": " + to_string(weights.error()));
  if (o.export_format != "torchscript")
    std::erase_if(weights->tensors, [&](const named_values& each) { // float32 only
      auto at = std::ranges::find(weights->table.tensors(), each.name, &state_tensor::name);
      return at->what == state_tensor::kind::counter;
    });
  WAGGLE_TRY(content, o.export_format == "torchscript"
                        ? torchscript_file(o.model, weights->tensors)
                        : safetensors_file(std::move(weights->tensors), last->epoch));
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

result<checkpoint_store::found> last_checkpoint(const std::filesystem::path& folder) {
  WAGGLE_TRY(where, checkpoints_below(folder));
  WAGGLE_TRY(last, checkpoint_store{make_system_disk(), *where}.read_last());
  for (const auto& bad : last->skipped)
    std::cerr << "waggle: " << bad.detail << ": the checkpoint before it is used\n";
  return std::move(*last->newest);
}

command export_command() {
  return export_entry(run_export);
}

} // namespace waggle
