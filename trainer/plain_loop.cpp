#include "trainer/plain_loop.hpp"

#include <functional>
#include <thread>

#include "runtime/training/state_schema.hpp"
#include "trainer/autocast.hpp"
#include "trainer/compute_setup.hpp"
#include "trainer/flat_optimizer.hpp"
#include "trainer/optimizers.hpp"
#include "trainer/training_model.hpp"

namespace waggle {

namespace {

/// The optimizer's step for all parameters of a model, from their .grad: torch::optim, or for the
/// optimizers that it does not have, and for parameters that decay differently, our own rule for
/// each parameter.
std::function<void()> stepper(const optimizer_identity& numbers, double lr,
                              const std::vector<torch::Tensor>& parameters) {
  const auto* known = find_torch_optimizer(numbers.kind);
  if (known != nullptr && numbers.decay_vectors)
    return
      [optimizer = std::shared_ptr{known->make(numbers, lr, parameters)}] { optimizer->step(); };
  auto rules = std::make_shared<std::vector<flat_optimizer>>();
  for (const auto& p : parameters) {
    state_tensor row{"p", {p.sizes().begin(), p.sizes().end()}, state_tensor::kind::parameter};
    rules->emplace_back(numbers, table_of({row}, numbers), p.detach());
  }
  return [rules, parameters, lr] {
    torch::NoGradGuard guard;
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      auto flat = parameters[i].view({-1});
      (*rules)[i].step(flat, parameters[i].grad().reshape({-1}), lr);
    }
  };
}

} // namespace

result<loop_report> run_plain_loop(const learner_config& config, std::uint64_t target_batch,
                                   double lr, std::uint64_t steps, milliseconds step_interval) {
  auto in = open_inputs(config);
  if (!in)
    return in.error();
  const auto& device = in->devices.front();
  set_threads(config.threads);
  const auto& shape = in->data->shape();
  window_sampler sampler{in->data, window_of(shape, static_cast<std::size_t>(config.context)),
                         random_source{config.data_seed}};
  auto made = make_training_model(config, shape);
  if (!made)
    return made.error();
  auto& model = **made;
  model.to(device);
  std::vector<torch::Tensor> parameters;
  for (const auto& item : model.parameters())
    parameters.push_back(item.second);
  auto step_optimizer = stepper(config.optimizer, lr, parameters);
  auto passes = micro_steps_of(target_batch, config.micro_batch);

  loop_report report{steps, steps * passes, {}, 0};
  bench_stopwatch watch;
  for (std::uint64_t step = 0; step <= steps; ++step) {
    torch::Tensor loss;
    for (std::uint64_t pass = 0; pass < passes; ++pass) {
      auto samples = next_batch(sampler, config.micro_batch, device);
      if (!samples)
        return samples.error();
      {
        autocast scope{config.format, device};
        loss = model.loss(*samples);
      }
      (loss / static_cast<double>(passes)).backward();
      std::this_thread::sleep_for(step_interval);
    }
    step_optimizer();
    for (auto& p : parameters)
      if (p.grad().defined())
        p.mutable_grad().zero_();
    report.last_loss = loss.item<double>();
    if (step == 0)
      watch = {};
  }
  report.timing = watch.elapsed();
  return report;
}

} // namespace waggle
