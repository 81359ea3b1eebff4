#include "trainer/torch_learner.hpp"

#include <cmath>
#include <mutex>
#include <optional>

#include <torch/torch.h>

#include "runtime/core/byte_io.hpp"
#include "runtime/core/named.hpp"
#include "runtime/training/local_learner.hpp"
#include "runtime/training/resumable_learner.hpp"
#include "runtime/training/state_schema.hpp"
#include "trainer/autocast.hpp"
#include "trainer/compute_setup.hpp"
#include "trainer/flat_optimizer.hpp"
#include "trainer/gradient_sum.hpp"
#include "trainer/host_staging.hpp"
#include "trainer/models.hpp"
#include "trainer/parameter_copies.hpp"

namespace waggle {

namespace {

class torch_learner final : public local_learner, public resumable_learner {
public:
  torch_learner(const learner_config& config, torch::Device device,
                std::shared_ptr<const byte_data> data)
    : config_(config), device_(device), staging_(device), model_(make_byte_model(config)),
      sampler_(std::move(data), window_of(config), random_source{config.data_seed}) {
    flatten();
    if (config_.reuse_gradient_buffers)
      sum_ = std::make_unique<in_place_sum>(model_->parameters());
    else
      sum_ = std::make_unique<separate_sum>(model_->parameters());
    if (config_.loss_scale)
      scaler_.emplace(*config_.loss_scale);
    tensors_ = name_tensors();
    optimizer_.emplace(config_.optimizer, tensors_, parameters_->master());
    schema_ = schema_of(tensors_, config_.optimizer, function_of(config_.model, shape_of(config_)));
  }

  [[nodiscard]] bool passes_beside_updates() const override { return config_.offload_optimizer; }
  [[nodiscard]] const state_table& tensors() const override { return tensors_; }
  [[nodiscard]] digest schema() const override { return schema_; }

  void use_vectors(std::shared_ptr<vector_pool> vectors) override {
    sum_->use_vectors(std::move(vectors));
  }

  micro_step accumulate() override {
    parameters_->refresh();
    auto batch = config_.micro_batch;
    auto windows = next_windows(sampler_, batch, device_);
    if (!windows)
      return {.why = windows.error()};
    auto loss = loss_of(*windows);
    sum_->will_draw(sampler_.drawn());
    auto scale = sum_->begin_pass(loss_scale());
    (scale == 1 ? loss : loss * scale).backward();
    micro_step step{loss.item<double>(), static_cast<std::uint64_t>(batch)};
    auto outcome = sum_->end_pass(step.samples, std::isfinite(step.loss));
    step.finite = outcome.finite;
    step.lost = outcome.lost;
    if (scaler_) {
      step.scale = scale;
      std::lock_guard lock{scaling_};
      bool too_large = !step.finite && std::isfinite(step.loss) && scale > loss_scaler::scale_min;
      step.overflow = too_large && scaler_->on_overflow(scale);
    }
    return step;
  }

  std::uint64_t take_mean_gradient(std::span<float> out) override { return sum_->take_mean(out); }
  mean_gradient take_mean_vector(vector_pool& vectors) override {
    if (auto mean = sum_->take_vector())
      return *std::move(mean);
    return learner::take_mean_vector(vectors);
  }
  std::uint64_t drop_gradient() override { return sum_->drop(); }
  [[nodiscard]] std::uint64_t accumulated_samples() const override { return sum_->samples(); }
  [[nodiscard]] bool adds_in_place() const override { return config_.reuse_gradient_buffers; }

  void apply(std::span<const float> gradient, double lr) override {
    torch::NoGradGuard guard;
    std::lock_guard lock{values_};
    step(view_of(gradient), lr);
  }

  void step_locally(double lr) override {
    torch::NoGradGuard guard;
    auto mean = sum_->take_mean();
    if (!mean.defined())
      return;
    std::lock_guard lock{values_};
    step(mean, lr);
  }

  void read_tensor(std::size_t which, std::span<float> out) const override {
    torch::NoGradGuard guard;
    staging_.to_host(tensor(which), view_of(out));
  }
  [[nodiscard]] std::span<const float> values_of(std::size_t which) const override {
    auto values = tensor(which);
    if (!values.is_cpu())
      return {};
    return {values.data_ptr<float>(), static_cast<std::size_t>(values.numel())};
  }
  void write_tensor(std::size_t which, std::span<const float> values) override {
    torch::NoGradGuard guard;
    parameters_->change(
      [&](const torch::Tensor&) { staging_.to_device(view_of(values), tensor(which)); });
  }
  [[nodiscard]] std::uint64_t optimizer_steps() const override { return optimizer_->steps(); }
  void set_optimizer_steps(std::uint64_t steps) override { optimizer_->set_steps(steps); }
  [[nodiscard]] std::string own_state() const override {
    std::lock_guard lock{scaling_};
    return scaler_ ? scaler_->save() : std::string{};
  }
  status load_own_state(std::string_view own) override {
    std::lock_guard lock{scaling_};
    return scaler_ ? scaler_->load(own) : status{done{}};
  }

  [[nodiscard]] std::string position() const override { return text_of(sum_->position()); }
  [[nodiscard]] std::string taken_position() const override {
    return text_of(sum_->taken_position());
  }
  status load_position(std::string_view position) override {
    byte_reader in{position};
    auto of = in.get<std::uint64_t>();
    auto drawn = in.get<std::uint64_t>();
    if (!in.ok() || in.left() > 0 || of != sampler_.fingerprint())
      return failure{ec::malformed, "its position is one in other --data, or of another --seed"};
    sampler_.continue_after(drawn);
    sum_->load_position(drawn);
    return done{};
  }
  [[nodiscard]] partial_gradient copy_gradient() const override { return sum_->copy(); }
  status load_gradient(const partial_gradient& partial) override { return sum_->load(partial); }

private:
  [[nodiscard]] std::string text_of(std::uint64_t drawn) const {
    return byte_writer{}.put(sampler_.fingerprint()).put(drawn).take();
  }

  void step(const torch::Tensor& gradient, double lr) {
    parameters_->change([&](torch::Tensor& master) {
      auto there = master.is_cpu() ? staging_.to_host(gradient) : staging_.to_device(gradient);
      optimizer_->step(master, there, lr);
    });
    std::lock_guard lock{scaling_};
    if (scaler_)
      scaler_->on_update();
  }

  [[nodiscard]] double loss_scale() const {
    std::lock_guard lock{scaling_};
    return scaler_ ? scaler_->scale() : 1;
  }

  [[nodiscard]] torch::Tensor loss_of(const torch::Tensor& windows) {
    autocast scope{config_.format, device_};
    return model_->loss(windows);
  }

  /// Makes every parameter a view of one flat tensor.
  void flatten() {
    torch::NoGradGuard guard;
    model_->to(device_);
    std::int64_t total = 0;
    for (const auto& p : model_->parameters())
      total += p.numel();
    auto options = torch::TensorOptions{}.dtype(torch::kFloat32).device(device_);
    auto flat = torch::empty({total}, options);
    std::int64_t offset = 0;
    for (auto& p : model_->parameters()) {
      auto view = flat.narrow(0, offset, p.numel()).view(p.sizes());
      view.copy_(p);
      p.set_data(view);
      offset += p.numel();
    }
    parameters_.emplace(flat, config_.offload_optimizer);
  }

  /// The parameters under LibTorch's names, followed by the statistics of the optimizer.
  [[nodiscard]] state_table name_tensors() const {
    std::vector<state_tensor> parameters;
    for (const auto& item : model_->named_parameters()) {
      auto sizes = item.value().sizes();
      parameters.push_back(
        {item.key(), {sizes.begin(), sizes.end()}, state_tensor::kind::parameter});
    }
    return table_of(std::move(parameters), config_.optimizer);
  }

  /// Returns a view of a tensor of the table.
  [[nodiscard]] torch::Tensor tensor(std::size_t which) const {
    bool statistic = tensors_[which].what != state_tensor::kind::parameter;
    auto begin = tensors_.offset(which) - (statistic ? tensors_.parameter_count() : 0);
    return (statistic ? optimizer_->statistics() : parameters_->master())
      .narrow(0, static_cast<std::int64_t>(begin),
              static_cast<std::int64_t>(tensors_[which].elements()));
  }

  learner_config config_;
  torch::Device device_;
  mutable host_staging staging_; // for gradients of updates, and states
  std::shared_ptr<byte_model> model_;
  window_sampler sampler_;
  std::optional<parameter_copies> parameters_;
  std::unique_ptr<gradient_sum> sum_;
  mutable std::mutex scaling_; // guards scaler_: passes may run beside updates
  std::optional<loss_scaler> scaler_;
  std::optional<flat_optimizer> optimizer_;
  state_table tensors_;
  digest schema_;
};

} // namespace

model_shape shape_of(const learner_config& c) {
  return {c.layers, c.width, c.heads, c.context};
}

status check_learner_config(const learner_config& config) {
  auto bad = [](std::string why) { return failure{ec::bad_config, std::move(why)}; };
  const auto* model = find_model(config.model);
  if (model == nullptr)
    return bad("--model " + config.model + " is unknown: use " + listed(model_table()));
  if (find_optimizer(config.optimizer.kind) == nullptr)
    return bad("--optimizer " + config.optimizer.kind + " is unknown: use "
               + listed(optimizer_table()));
  if (auto fits = check_optimizer(config.optimizer); !fits)
    return fits;
  for (auto [name, value] : {std::pair{"--layers", config.layers},
                             {"--width", config.width},
                             {"--heads", config.heads},
                             {"--context", config.context},
                             {"--micro-batch", config.micro_batch},
                             {"--threads", static_cast<std::int64_t>(config.threads)}})
    if (value < 1)
      return bad(std::string{name} + " is " + std::to_string(value) + ": it must be at least 1");
  if (auto fits = model->check(shape_of(config)); !fits)
    return fits;
  auto device = device_of(config.device);
  if (!device)
    return device.error();
  if (auto computes = check_precision(config.format, *device); !computes)
    return computes;
  auto data = open_data(config);
  if (!data)
    return data.error();
  return done{};
}

result<std::unique_ptr<learner>> make_torch_learner(const learner_config& config) {
  if (auto usable = check_learner_config(config); !usable)
    return usable.error();
  auto device = device_of(config.device);
  if (!device)
    return device.error();
  auto data = open_data(config);
  if (!data)
    return data.error();
  set_threads(config.threads);
  try {
    return std::unique_ptr<learner>{std::make_unique<torch_learner>(config, *device, *data)};
  } catch (const c10::Error& e) {
    return failure{ec::bad_config,
                   "LibTorch cannot make the model: " + std::string{e.what_without_backtrace()}};
  }
}

} // namespace waggle
