#include "trainer/plain_loop.hpp"

#include <thread>

#include "runtime/core/try.hpp"
#include "trainer/autocast.hpp"
#include "trainer/compute_setup.hpp"
#include "trainer/optimizers.hpp"
#include "trainer/training_model.hpp"

namespace waggle {

result<loop_report> run_plain_loop(const learner_config& config, std::uint64_t target_batch,
                                   double lr, std::uint64_t steps, milliseconds step_interval) {
  WAGGLE_TRY(in, open_inputs(config));
  if (in->data->in_blocks())
    return failure{ec::bad_config, "the plain loop reads no lines of JSON: give another --data"};
  const auto& device = in->devices.front();
  set_threads(config.threads);
  const auto& shape = in->data->shape();
  window_sampler sampler{in->data, window_of(shape, static_cast<std::size_t>(config.context)),
                         random_source{config.data_seed}};
  WAGGLE_TRY(made, make_training_model(config, shape));
  auto& model = **made;
  model.to(device);
  std::vector<torch::Tensor> parameters;
  for (const auto& item : model.parameters())
    parameters.push_back(item.second);
  auto optimizer = make_optimizer(config.optimizer, lr, parameters);
  auto passes = micro_steps_of(target_batch, config.micro_batch);

  loop_report report{steps, steps * passes, {}, 0};
  bench_stopwatch watch;
  for (std::uint64_t step = 0; step <= steps; ++step) {
    torch::Tensor loss;
    for (std::uint64_t pass = 0; pass < passes; ++pass) {
      WAGGLE_TRY(samples, next_batch(sampler, config.micro_batch, device));
      {
        autocast scope{config.format, device};
        loss = model.loss(*samples);
      }
      (loss / static_cast<double>(passes)).backward();
      std::this_thread::sleep_for(step_interval);
    }
    optimizer->step();
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
