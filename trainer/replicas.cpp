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
    model_(std::move(model)) {
  torch::NoGradGuard guard;
  model_->to(device_);
  parameters_ = device_ == first_.device() ? first_ : torch::empty_like(first_, device_);
  gradient_ = torch::empty_like(parameters_);
  flatten(*model_, parameters_, gradient_);
  thread_ = std::thread{[this, threads = config.threads] { run(threads); }};
}

replica::~replica() {
  {
    std::lock_guard lock{mutex_};
    stops_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void replica::begin(batch samples, double scale) {
  {
    std::lock_guard lock{mutex_};
    task_ = [this, samples = std::move(samples), scale] { return compute(samples, scale); };
  }
  changed_.notify_all();
}

replica::pass replica::end() {
  std::unique_lock lock{mutex_};
  changed_.wait(lock, [this] { return task_ == nullptr; });
  if (auto thrown = std::exchange(thrown_, nullptr))
    std::rethrow_exception(thrown);
  return done_;
}

void replica::run(int threads) {
  set_threads(threads);
  std::unique_lock lock{mutex_};
  for (;;) {
    changed_.wait(lock, [this] { return stops_ || task_ != nullptr; });
    if (stops_)
      return;
    auto task = task_;
    lock.unlock();
    pass made;
    std::exception_ptr thrown;
    try {
      made = task();
    } catch (...) {
      thrown = std::current_exception();
    }
    lock.lock();
    done_ = std::move(made);
    thrown_ = thrown;
    task_ = nullptr;
    changed_.notify_all();
  }
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
  (scale == 1 ? loss : loss * scale).backward();
  pass made{loss.item<double>(), gradient_};
  made.finite = std::isfinite(made.loss) && std::isfinite(gradient_.sum().item<double>());
  return made;
}

} // namespace waggle
