#include "trainer/script_model.hpp"

#include <algorithm>
#include <map>
#include <set>

#include <torch/script.h>
#include <torch/version.h>

#include "runtime/core/try.hpp"
#include "trainer/buffer_values.hpp"

namespace waggle {

namespace {

using torch::jit::Module;
namespace fn = torch::nn::functional;

failure bad(const std::filesystem::path& file, const std::string& why) {
  return {ec::bad_config, "--model " + file.string() + ": " + why};
}

/// LibTorch's messages go on for pages, may begin with an empty line, and have whole paragraphs in
/// the first one.
std::string first_line(const std::string& text) {
  constexpr std::size_t length_max = 300;
  auto begin = std::min(text.find_first_not_of('\n'), text.size());
  auto line = text.substr(begin, text.find('\n', begin) - begin);
  if (line.size() > length_max)
    line.resize(std::min(line.rfind(". ", length_max), length_max));
  return line;
}

/// The line of an error within TorchScript that says what went wrong: the last one.
std::string cause_of(const std::exception& e) {
  const auto* error = dynamic_cast<const c10::Error*>(&e);
  std::string text = error != nullptr ? error->what_without_backtrace() : e.what();
  while (!text.empty() && text.back() == '\n')
    text.pop_back();
  auto begin = text.rfind('\n');
  return first_line(begin == std::string::npos ? text : text.substr(begin + 1));
}

/// Loaded tied parameters are several tensors with one memory, each with a gradient of its own.
void unite_tied(Module module, std::map<const void*, torch::Tensor>& seen) {
  for (const auto& p : module.named_parameters(/*recurse=*/false)) {
    if (p.value.numel() == 0)
      continue;
    auto [first, fresh] = seen.emplace(p.value.data_ptr(), p.value);
    if (!fresh && !first->second.is_same(p.value) && first->second.sizes() == p.value.sizes())
      module.setattr(p.name, first->second);
  }
  for (const auto& child : module.named_children())
    unite_tied(child.value, seen);
}

/// Those for which `wanted` is true, the averaged ones first, sorted.
template <class Wanted>
training_model::named_tensors buffers_of(const Module& module, Wanted wanted) {
  std::map<std::pair<bool, std::string>, torch::Tensor> sorted;
  for (const auto& b : module.named_buffers())
    if (wanted(b))
      sorted.emplace(std::pair{!b.value.is_floating_point(), b.name}, b.value);
  training_model::named_tensors all;
  for (const auto& [place, value] : sorted)
    all.emplace_back(place.second, value);
  return all;
}

class script_model final : public training_model {
public:
  /// `written`: the names of the buffers that passes write to.
  script_model(Module module, const learner_config& config, const sample_shape& shape,
               std::set<std::string> written = {})
    : module_(std::move(module)), written_(std::move(written)), classes_(shape.classes),
      squares_(config.loss == "mse"), own_loss_(module_.find_method("loss").has_value()),
      shows_scores_(module_.find_method("forward").has_value()) {
    module_.train(true);
  }

  [[nodiscard]] named_tensors parameters() const override { return trained_parameters(module_); }
  [[nodiscard]] named_tensors buffers() const override {
    return buffers_of(module_, [this](const auto& b) { return written_.contains(b.name); });
  }
  void to(const torch::Device& device) override { module_.to(device); }
  void train(bool on) override { module_.train(on); }

  torch::Tensor loss(const batch& samples) override {
    if (own_loss_)
      return module_.get_method("loss")({samples.inputs, samples.targets})
        .toTensor()
        .to(torch::kFloat32);
    return loss_of(scores(samples.inputs), samples.targets);
  }

  measurement measure(const batch& samples) override {
    torch::NoGradGuard guard;
    measurement out;
    out.predictions = static_cast<std::uint64_t>(samples.targets.numel());
    if (!shows_scores_) {
      out.loss = loss(samples).item<double>();
      return out;
    }
    auto all = scores(samples.inputs);
    out.loss = (own_loss_ ? loss(samples) : loss_of(all, samples.targets)).item<double>();
    if (all.size(-1) != classes_)
      return out; // these are no classes
    auto targets = targets_of(all, samples.targets);
    out.predictions = static_cast<std::uint64_t>(targets.numel());
    if (all.numel() == targets.numel() * classes_)
      out.right = count_right(all.reshape({-1, classes_}), targets);
    return out;
  }

private:
  torch::Tensor scores(const torch::Tensor& inputs) {
    return module_.get_method("forward")({inputs}).toTensor().to(torch::kFloat32);
  }

  /// A module that predicts only what follows the whole context has one prediction a sample.
  static torch::Tensor targets_of(const torch::Tensor& scores, const torch::Tensor& targets) {
    if (scores.dim() == 2 && targets.dim() == 2)
      return targets.select(1, targets.size(1) - 1);
    return targets.reshape({-1});
  }

  [[nodiscard]] torch::Tensor loss_of(const torch::Tensor& scores,
                                      const torch::Tensor& targets) const {
    auto wanted = targets_of(scores, targets);
    if (!squares_)
      return fn::cross_entropy(scores.reshape({-1, scores.size(-1)}), wanted);
    if (scores.numel() == wanted.numel())
      return torch::mse_loss(scores.reshape({-1}), wanted.to(torch::kFloat32));
    return torch::mse_loss(scores.reshape({-1, classes_}),
                           torch::one_hot(wanted, classes_).to(torch::kFloat32));
  }

  Module module_;
  std::set<std::string> written_;
  std::int64_t classes_;
  bool squares_;
  bool own_loss_;
  bool shows_scores_;
};

status check_parameters(const std::filesystem::path& file, const Module& module) {
  if (module.named_parameters().size() == 0)
    return bad(file, "it has no parameters, as after torch.jit.freeze: save the module before it "
                     "is frozen");
  auto trained = trained_parameters(module);
  if (trained.empty())
    return bad(file, "none of its parameters has values and requires a gradient: call "
                     "requires_grad_() before it is saved");
  for (const auto& [name, value] : trained)
    if (value.scalar_type() != torch::kFloat32)
      return bad(file, c10::str("the parameter ", name, " is ", value.scalar_type(),
                                ", and training needs float32: save it again after .float(), and "
                                "use --precision for short products"));
  std::map<const void*, std::string> memory;
  for (const auto& [name, value] : trained)
    if (auto [other, fresh] = memory.emplace(value.data_ptr(), name); !fresh)
      return bad(file, c10::str("the parameters ", other->second, " and ", name,
                                " share memory in two shapes: save it again with one parameter, "
                                "and a view of it in forward"));
  return done{};
}

/// A batch of zeros.
batch example(const learner_config& config, const sample_shape& shape) {
  const auto count = config.micro_batch; // a trace may have fixed it
  auto items =
    static_cast<std::size_t>(count) * window_of(shape, static_cast<std::size_t>(config.context));
  std::vector<std::byte> samples(items * shape.item_bytes);
  return batch_of(samples, count, shape, torch::kCPU);
}

status check_loss(const std::filesystem::path& file, const torch::Tensor& loss) {
  if (loss.dim() != 0) {
    std::string sizes;
    for (auto size : loss.sizes())
      sizes += (sizes.empty() ? "" : " × ") + std::to_string(size);
    return bad(file, "its loss is a tensor of " + sizes
                       + " values: return one number, the mean over the batch");
  }
  if (!loss.requires_grad())
    return bad(file, "its loss does not depend on a parameter that requires a gradient");
  return done{};
}

/// Whether it computes, and in evaluation the same twice.
status try_out(const std::filesystem::path& file, training_model& model,
               const learner_config& config, const sample_shape& shape) {
  auto samples = example(config, shape);
  try {
    model.train(true);
    auto loss = model.loss(samples);
    WAGGLE_TRY(good, check_loss(file, loss));
    loss.backward();
    for (auto& [name, value] : model.parameters())
      value.mutable_grad() = torch::Tensor{};
    model.train(false);
    torch::NoGradGuard guard;
    auto once = model.loss(samples);
    auto twice = model.loss(samples);
    model.train(true);
    if (!once.equal(twice))
      return bad(file, "it computes another loss each time although it is in evaluation: its "
                       "dropout was traced and does not follow train(): save it with "
                       "torch.jit.script, or trace it without dropout");
  } catch (const std::exception& e) {
    return bad(file, c10::str("it cannot compute a loss of ", description_of(shape), ", inputs ",
                              samples.inputs.sizes(), " and targets ", samples.targets.sizes(),
                              ": ", cause_of(e)));
  }
  return done{};
}

} // namespace

result<Module> load_module(const std::filesystem::path& file) {
  std::error_code error;
  if (!std::filesystem::is_regular_file(file, error))
    return bad(file,
               error ? "cannot be read: " + error.message() : std::string{"there is no such file"});
  try {
    auto module = torch::jit::load(file.string(), torch::kCPU);
    std::map<const void*, torch::Tensor> seen;
    unite_tied(module, seen);
    return module;
  } catch (const std::exception& e) {
    const auto* known = dynamic_cast<const c10::Error*>(&e);
    auto why = first_line(known != nullptr ? known->what_without_backtrace() : e.what());
    bool is_older = why.find("Unknown builtin op") != std::string::npos;
    return bad(file,
               c10::str("LibTorch " TORCH_VERSION " cannot load it: ", why, "; ",
                        is_older ? "train the module from Python by waggle.Optimizer, build waggle "
                                   "with the LibTorch of the PyTorch that has saved it, or write "
                                   "that operator out in the module"
                                 : "if a newer PyTorch has saved it, save it again with "
                                   "torch.jit.save of PyTorch " TORCH_VERSION));
  }
}

training_model::named_tensors trained_parameters(const Module& module) {
  std::map<std::string, torch::Tensor> sorted;
  for (const auto& p : module.named_parameters())
    if (p.value.requires_grad() && p.value.numel() > 0)
      sorted.emplace(p.name, p.value);
  training_model::named_tensors out;
  for (const auto& [name, value] : sorted)
    if (std::none_of(out.begin(), out.end(),
                     [&value = value](const auto& known) { return known.second.is_same(value); }))
      out.emplace_back(name, value);
  return out;
}

training_model::named_tensors exchanged_buffers(const Module& module) {
  return buffers_of(module, [](const auto& b) { return is_exchanged(b.value); });
}

result<std::shared_ptr<training_model>> load_script_model(const learner_config& config,
                                                          const sample_shape& shape) {
  std::filesystem::path file{config.model};
  WAGGLE_TRY(module, load_module(file));
  WAGGLE_TRY(good, check_parameters(file, *module));
  if (!module->find_method("loss") && !module->find_method("forward"))
    return bad(file, "it has no loss: export a method loss(inputs, targets), or a forward, to "
                     "which --loss is applied");
  // The trial changes buffers, so the learner gets a module that was not tried out.
  WAGGLE_TRY(trial, load_module(file));
  struct buffer {
    torch::Tensor tensor;
    std::int64_t version;
    torch::Tensor values;
  };
  std::map<std::string, buffer> before;
  for (const auto& [name, value] : exchanged_buffers(*trial))
    before.emplace(name, buffer{value, value._version(), value.clone()});
  if (auto good =
        try_out(file, *std::make_unique<script_model>(*trial, config, shape), config, shape);
      !good)
    return good.error();
  std::set<std::string> written;
  for (const auto& b : trial->named_buffers()) {
    auto was = before.find(b.name);
    // The kernels of normalizations write without a new version, and here perhaps what was there.
    if (was != before.end()
        && (b.name.ends_with("running_mean") || b.name.ends_with("running_var")
            || !b.value.is_same(was->second.tensor) || b.value._version() != was->second.version
            || !b.value.equal(was->second.values)))
      written.insert(b.name);
  }
  return std::shared_ptr<training_model>{
    std::make_shared<script_model>(std::move(*module), config, shape, std::move(written))};
}

} // namespace waggle
