#include "trainer/torch_learner.hpp"

#include <atomic>
#include <cmath>
#include <mutex>
#include <optional>

#include <torch/torch.h>

#include "runtime/core/named.hpp"
#include "runtime/training/local_learner.hpp"
#include "trainer/compute_setup.hpp"
#include "trainer/flat_optimizer.hpp"
#include "trainer/models.hpp"
#include "trainer/parameter_copies.hpp"
#include "trainer/state_schema.hpp"

namespace waggle {

namespace {

class torch_learner final : public local_learner {
public:
  torch_learner(const learner_config& config, torch::Device device,
                std::shared_ptr<const byte_data> data)
    : config_(config), device_(device), model_(make_model(config)),
      sampler_(std::move(data), window_of(config), random_source{config.data_seed}) {
    flatten();
    tensors_ = name_tensors();
    optimizer_.emplace(config_.optimizer, tensors_, parameters_->master());
    schema_ = schema_of(tensors_, config_.optimizer, function_of(config_.model, shape_of(config_)));
  }

  [[nodiscard]] bool passes_beside_updates() const override { return config_.offload_optimizer; }
  [[nodiscard]] const state_table& tensors() const override { return tensors_; }
  [[nodiscard]] digest schema() const override { return schema_; }

  void use_vectors(std::shared_ptr<vector_pool> vectors) override { vectors_ = std::move(vectors); }

  micro_step accumulate() override {
    parameters_->refresh();
    auto batch = config_.micro_batch;
    auto loss = model_->loss(next_windows(sampler_, batch, device_));
    clear_gradient();
    loss.backward();
    micro_step step{loss.item<double>(), static_cast<std::uint64_t>(batch), true};
    torch::NoGradGuard guard;
    // The sum is finite only if every value is (opposite infinities give NaN).
    step.finite = std::isfinite(step.loss) && std::isfinite(gradient_.sum().item<double>());
    if (step.finite) {
      std::lock_guard lock{accumulators_};
      last_pass_ = step.samples;
      samples_.fetch_add(step.samples);
    }
    return step;
  }

  std::uint64_t take_mean_gradient(std::span<float> out) override {
    torch::NoGradGuard guard;
    std::lock_guard lock{accumulators_};
    auto samples = samples_.exchange(0);
    auto to = view_of(out);
    if (samples > 0) {
      write_sum(to);
      to.div_(static_cast<double>(samples));
    } else {
      to.zero_();
    }
    empty_accumulators();
    return samples;
  }

  mean_gradient take_mean_vector(vector_pool& vectors) override {
    torch::NoGradGuard guard;
    std::unique_lock lock{accumulators_};
    if (!earlier_memory_) {
      lock.unlock();
      return learner::take_mean_vector(vectors);
    }
    auto samples = samples_.exchange(0);
    if (last_pass_ > 0)
      earlier_.add_(gradient_, static_cast<double>(last_pass_));
    earlier_.div_(static_cast<double>(samples));
    mean_gradient mean{std::move(earlier_memory_), samples};
    empty_accumulators();
    return mean;
  }

  std::uint64_t drop_gradient() override {
    std::lock_guard lock{accumulators_};
    auto samples = samples_.exchange(0);
    empty_accumulators();
    return samples;
  }

  [[nodiscard]] std::uint64_t accumulated_samples() const override { return samples_.load(); }

  void apply(std::span<const float> gradient, double lr) override {
    torch::NoGradGuard guard;
    std::lock_guard lock{values_};
    step(view_of(gradient), lr);
  }

  void step_locally(double lr) override {
    torch::NoGradGuard guard;
    auto mean = gradient_; // of the only pass since the last step, normally
    {
      std::lock_guard lock{accumulators_};
      auto samples = static_cast<double>(samples_.exchange(0));
      if (samples == 0)
        return;
      if (earlier_.defined())
        mean = earlier_.add_(gradient_, static_cast<double>(last_pass_)).div_(samples).clone();
      empty_accumulators();
    }
    std::lock_guard values{values_};
    step(mean, lr);
  }

  void read_tensor(std::size_t which, std::span<float> out) const override {
    torch::NoGradGuard guard;
    view_of(out).copy_(tensor(which));
  }
  [[nodiscard]] std::span<const float> values_of(std::size_t which) const override {
    auto values = tensor(which);
    if (!values.is_cpu())
      return {};
    return {values.data_ptr<float>(), static_cast<std::size_t>(values.numel())};
  }
  void write_tensor(std::size_t which, std::span<const float> values) override {
    torch::NoGradGuard guard;
    parameters_->change([&](const torch::Tensor&) { tensor(which).copy_(view_of(values)); });
  }
  [[nodiscard]] std::uint64_t optimizer_steps() const override { return optimizer_->steps(); }
  void set_optimizer_steps(std::uint64_t steps) override { optimizer_->set_steps(steps); }

private:
  void step(const torch::Tensor& gradient, double lr) {
    parameters_->change(
      [&](torch::Tensor& master) { optimizer_->step(master, gradient.to(master.device()), lr); });
  }

  /// Makes every parameter, and its gradient, a view of one flat tensor.
  void flatten() {
    torch::NoGradGuard guard;
    model_->to(device_);
    std::int64_t total = 0;
    for (const auto& p : model_->parameters())
      total += p.numel();
    auto options = torch::TensorOptions{}.dtype(torch::kFloat32).device(device_);
    auto flat = torch::empty({total}, options);
    gradient_ = torch::empty({total}, options); // needs no memory before the first pass clears it
    std::int64_t offset = 0;
    for (auto& p : model_->parameters()) {
      auto view = flat.narrow(0, offset, p.numel()).view(p.sizes());
      view.copy_(p);
      p.set_data(view);
      p.mutable_grad() = gradient_.narrow(0, offset, p.numel()).view(p.sizes());
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

  // -- accumulators -------------------------------------------------------------------------------
  //
  // The gradient of the last pass stays in `gradient_` until the next pass overwrites it. A second
  // vector, `earlier_`, exists only while an epoch has more than one pass. It is taken from the
  // pool of the rounds and becomes the outgoing vector of the round. So two vectors of the pool are
  // in use at a time (this one and a result), and each is always used for the same purpose: peers
  // on this machine map the memory that they have read from.

  /// Called by the computing thread before a pass writes its gradient.
  void clear_gradient() {
    torch::NoGradGuard guard;
    {
      std::lock_guard lock{accumulators_};
      if (last_pass_ > 0) {
        if (!earlier_.defined()) {
          earlier_ = new_accumulator();
          earlier_.copy_(gradient_).mul_(static_cast<double>(last_pass_));
        } else {
          earlier_.add_(gradient_, static_cast<double>(last_pass_));
        }
        last_pass_ = 0;
      }
    }
    gradient_.zero_(); // no other thread reads it at this point
  }

  /// Writes Σ b·∇ of all passes. REQUIRES: the lock is held, and there was at least one pass.
  void write_sum(torch::Tensor& to) {
    auto last = static_cast<double>(last_pass_);
    if (!earlier_.defined())
      to.copy_(gradient_).mul_(last);
    else if (last_pass_ == 0)
      to.copy_(earlier_);
    else if (device_.is_cpu())
      torch::add_out(to, earlier_, gradient_, last);
    else
      to.copy_(earlier_.add_(gradient_, last));
  }

  /// REQUIRES: the lock is held.
  void empty_accumulators() {
    last_pass_ = 0;
    earlier_.reset();
    earlier_memory_.reset();
  }

  [[nodiscard]] torch::Tensor new_accumulator() {
    if (!vectors_ || !device_.is_cpu())
      return torch::empty_like(gradient_);
    earlier_memory_ = vectors_->take(static_cast<std::size_t>(gradient_.numel()));
    return view_of(std::span<float>{*earlier_memory_});
  }

  static torch::Tensor view_of(std::span<float> values) {
    return torch::from_blob(values.data(), {static_cast<std::int64_t>(values.size())});
  }
  static torch::Tensor view_of(std::span<const float> values) { // torch has no read-only tensors
    return view_of(std::span<float>{const_cast<float*>(values.data()), values.size()});
  }

  learner_config config_;
  torch::Device device_;
  std::shared_ptr<byte_model> model_;
  window_sampler sampler_;
  std::optional<parameter_copies> parameters_;
  torch::Tensor gradient_;
  torch::Tensor earlier_;                        // Σ b·∇ without the last pass, if not 0
  std::shared_ptr<float_vector> earlier_memory_; // the memory of earlier_, if from vectors_
  std::uint64_t last_pass_ = 0;                  // samples in gradient_; 0: ignore gradient_
  std::shared_ptr<vector_pool> vectors_;         // null: use the heap
  std::optional<flat_optimizer> optimizer_;
  std::mutex accumulators_; // guards the above, and gradient_ while last_pass_ > 0
  std::atomic<std::uint64_t> samples_{0};
  state_table tensors_;
  digest schema_;
};

} // namespace

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
