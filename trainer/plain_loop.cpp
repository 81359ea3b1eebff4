#include "trainer/plain_loop.hpp"

#include <chrono>

#include "runtime/cli/bench.hpp"
#include "trainer/compute_setup.hpp"
#include "trainer/models.hpp"
#include "trainer/optimizers.hpp"
#include "trainer/state_schema.hpp"

namespace waggle {

result<loop_report> run_plain_loop(const learner_config& config, std::uint64_t target_batch,
                                   double lr, std::uint64_t steps) {
  if (auto usable = check_learner_config(config); !usable)
    return usable.error();
  auto device = device_of(config.device);
  if (!device)
    return device.error();
  auto data = open_data(config);
  if (!data)
    return data.error();
  set_threads(config.threads);
  window_sampler sampler{*data, window_of(config), random_source{config.data_seed}};
  auto model = make_model(config);
  model->to(*device);
  auto optimizer =
    torch_optimizer_named(config.optimizer).make(identity_of(config), lr, model->parameters());
  auto passes = micro_steps_of(target_batch, config.micro_batch);

  using clock = std::chrono::steady_clock;
  loop_report report{steps, steps * passes, 0, 0, 0};
  auto began = clock::now();
  auto cpu_began = process_cpu_seconds();
  for (std::uint64_t step = 0; step <= steps; ++step) {
    torch::Tensor loss;
    for (std::uint64_t pass = 0; pass < passes; ++pass) {
      loss = model->loss(next_windows(sampler, config.micro_batch, *device));
      (loss / static_cast<double>(passes)).backward();
    }
    optimizer->step();
    optimizer->zero_grad();
    report.last_loss = loss.item<double>();
    if (step == 0) {
      began = clock::now();
      cpu_began = process_cpu_seconds();
    }
  }
  report.seconds = std::chrono::duration<double>(clock::now() - began).count();
  report.cpu_seconds = process_cpu_seconds() - cpu_began;
  return report;
}

} // namespace waggle
