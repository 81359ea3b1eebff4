#include "trainer/training_model.hpp"

#include <cstring>

#include "runtime/config/options.hpp"
#include "runtime/core/named.hpp"
#include "trainer/host_staging.hpp"
#include "trainer/models.hpp"
#include "trainer/script_model.hpp"

namespace waggle {

namespace {

class built_in_model final : public training_model {
public:
  explicit built_in_model(std::shared_ptr<classifier> model) : model_(std::move(model)) {}

  [[nodiscard]] named_tensors parameters() const override {
    named_tensors all;
    for (const auto& item : model_->named_parameters())
      all.emplace_back(item.key(), item.value());
    return all;
  }
  [[nodiscard]] named_tensors buffers() const override { return {}; }
  void to(const torch::Device& device) override { model_->to(device); }
  void train(bool on) override { model_->train(on); }

  torch::Tensor loss(const batch& samples) override {
    return torch::nn::functional::cross_entropy(model_->logits(samples.inputs),
                                                model_->predicted(samples.targets));
  }
  measurement measure(const batch& samples) override {
    torch::NoGradGuard guard;
    auto scores = model_->logits(samples.inputs);
    auto targets = model_->predicted(samples.targets);
    return {torch::nn::functional::cross_entropy(scores, targets).item<double>(),
            count_right(scores, targets), static_cast<std::uint64_t>(targets.numel())};
  }

private:
  std::shared_ptr<classifier> model_;
};

status fits(const learner_config& config, const model_row& row, const sample_shape& shape) {
  auto bad = [](std::string why) { return failure{ec::bad_config, std::move(why)}; };
  bool images = shape.what == sample_shape::kind::images;
  if (images != row.images)
    return bad(c10::str(
      "--model ", config.model, " learns ", row.images ? "images" : "text or tokens",
      ", and --data ", config.data, " is ", description_of(shape), ": use ",
      images ? "--model cnn, or a TorchScript file" : "another --model, or a folder of images"));
  if (images && std::min(shape.rows, shape.columns) >> config.layers == 0)
    return bad(c10::str("--layers ", config.layers, " is too many for ", description_of(shape),
                        ": each layer of cnn halves them; use fewer"));
  return done{};
}

} // namespace

void load_weights(const training_model& model, std::span<const float> weights) {
  torch::NoGradGuard guard;
  auto next = [&weights](std::uint64_t count) {
    auto values = weights.first(static_cast<std::size_t>(count));
    weights = weights.subspan(values.size());
    return values;
  };
  for (const auto& [name, tensor] : model.parameters())
    tensor.copy_(view_of(next(static_cast<std::uint64_t>(tensor.numel()))).view(tensor.sizes()));
  for (const auto& [name, tensor] : model.buffers())
    write_buffer(tensor, next(buffer_row(name, tensor).elements()));
}

status load_weights(const training_model::named_tensors& tensors,
                    const std::vector<named_values>& weights, const std::string& model) {
  auto differs = [&](const std::string& how) {
    return failure{ec::bad_config,
                   "the checkpoint is of another model than --model " + model + ": " + how};
  };
  auto text_of = [](auto shape) {
    return shape.empty() ? std::string{"one value"} : c10::Join(" x ", shape);
  };
  if (tensors.size() != weights.size())
    return differs(
      c10::str("it has ", weights.size(), " tensors, and the module ", tensors.size()));
  torch::NoGradGuard guard;
  for (const auto& [name, tensor] : tensors) {
    const auto* found = find_named(weights, name);
    if (found == nullptr)
      return differs("it has no " + name);
    auto shape = buffer_row(name, tensor).shape;
    if (shape != found->shape)
      return differs(c10::str("its ", name, " is ", text_of(found->shape),
                              ", and that of the module ", text_of(shape)));
    std::vector<float> values(found->values.size() / sizeof(float));
    std::memcpy(values.data(), found->values.data(), found->values.size());
    write_buffer(tensor, values);
  }
  return done{};
}

std::uint64_t count_right(const torch::Tensor& scores, const torch::Tensor& targets) {
  return static_cast<std::uint64_t>(scores.argmax(1).eq(targets).sum().item<std::int64_t>());
}

status check_training_model(const learner_config& config, const sample_shape& shape) {
  if (is_torchscript(config.model)) {
    auto loaded = load_script_model(config, shape);
    return loaded ? status{done{}} : loaded.error();
  }
  const auto* row = find_model(config.model);
  if (row == nullptr)
    return failure{ec::bad_config,
                   "--model " + config.model + " is unknown: use " + listed(model_table())};
  return fits(config, *row, shape);
}

result<std::shared_ptr<training_model>> make_training_model(const learner_config& config,
                                                            const sample_shape& shape) {
  if (is_torchscript(config.model))
    return load_script_model(config, shape);
  if (auto good = check_training_model(config, shape); !good)
    return good.error();
  return std::shared_ptr<training_model>{
    std::make_shared<built_in_model>(make_classifier(config, shape))};
}

} // namespace waggle
