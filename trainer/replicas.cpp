#include "trainer/replicas.hpp"

#include <cmath>
#include <utility>

#include "trainer/autocast.hpp"
#include "trainer/compute_setup.hpp"

namespace waggle {

torch::Tensor flatten(training_model& model, torch::Tensor parameters,
                      const torch::Tensor& gradient) {
  torch::NoGradGuard guard;
  auto named = model.parameters();
  std::int64_t total = 0;
  for (const auto& [name, p] : named)
    total += p.numel();
  bool filled = parameters.defined();
  if (!filled)
    parameters = torch::empty({total}, named.front().second.options());
  std::int64_t offset = 0;
  for (auto& [name, p] : named) {
    auto view = parameters.narrow(0, offset, p.numel()).view(p.sizes());
    if (!filled)
      view.copy_(p);
    p.set_data(view);
    if (gradient.defined())
      p.mutable_grad() = gradient.narrow(0, offset, p.numel()).view(p.sizes());
    offset += p.numel();
  }
  return parameters;
}

replica::replica(const learner_config& config, torch::Device device,
                 std::shared_ptr<training_model> model, torch::Tensor parameters)
  : format_(config.format), device_(device), first_(std::move(parameters)),
    model_(std::move(model)),
    thread_(1, /*numa_node_id=*/-1, [threads = config.threads] { set_threads(threads); }) {
  torch::NoGradGuard guard;
  model_->to(device_);
  parameters_ = device_ == first_.device() ? first_ : torch::empty_like(first_, device_);
  gradient_ = torch::empty_like(parameters_);
  flatten(*model_, parameters_, gradient_);
  std::vector<torch::Tensor> trained;
  for (const auto& item : model_->parameters())
    trained.push_back(item.second);
  hooks_.emplace(trained);
}

void replica::begin(batch samples, double scale) {
  auto task = std::make_shared<std::packaged_task<pass()>>(
    [this, samples = std::move(samples), scale] { return compute(samples, scale); });
  running_ = task->get_future();
  thread_.run([task] { (*task)(); });
}

replica::pass replica::compute(const batch& samples, double scale) {
  {
    torch::NoGradGuard guard;
    if (parameters_.device() != first_.device())
      parameters_.copy_(first_);
    gradient_.zero_();
  }
  torch::Tensor loss;
  {
    autocast scope{format_, device_};
    loss = model_->loss(samples);
  }
  pass made{0, gradient_};
  hooks_->listen([&made](std::size_t parameter) { made.present.push_back(parameter); });
  (scale == 1 ? loss : loss * scale).backward();
  hooks_->listen({});
  made.loss = loss.item<double>();
  made.finite = std::isfinite(made.loss) && std::isfinite(gradient_.sum().item<double>());
  return made;
}

} // namespace waggle
