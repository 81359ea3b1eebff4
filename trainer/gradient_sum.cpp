#include "trainer/gradient_sum.hpp"

#include <cmath>

#include "runtime/core/check.hpp"

namespace waggle {

namespace {

/// Whether every value is finite: only then their sum is (opposite infinities give NaN).
bool is_finite(const torch::Tensor& values) {
  return std::isfinite(values.sum().item<double>());
}

} // namespace

torch::Tensor view_of(std::span<float> values) {
  return torch::from_blob(values.data(), {static_cast<std::int64_t>(values.size())});
}

torch::Tensor view_of(std::span<const float> values) {
  return view_of(std::span<float>{const_cast<float*>(values.data()), values.size()});
}

// -- what both have -------------------------------------------------------------------------------

gradient_sum::gradient_sum(std::vector<torch::Tensor> parameters)
  : parameters_(std::move(parameters)), device_(parameters_.front().device()), staging_(device_) {
  for (const auto& p : parameters_)
    size_ += p.numel();
}

torch::Tensor gradient_sum::new_tensor() const {
  return torch::empty({size_}, torch::TensorOptions{}.dtype(torch::kFloat32).device(device_));
}

gradient_sum::vector gradient_sum::new_vector() const {
  if (!vectors_ || !device_.is_cpu())
    return {new_tensor(), nullptr};
  auto memory = vectors_->take(static_cast<std::size_t>(size_));
  return {view_of(std::span<float>{*memory}), memory};
}

void gradient_sum::bind(const torch::Tensor& gradient) {
  std::int64_t offset = 0;
  for (auto& p : parameters_) {
    p.mutable_grad() = gradient.narrow(0, offset, p.numel()).view(p.sizes());
    offset += p.numel();
  }
}

void gradient_sum::load_position(std::uint64_t position) {
  std::lock_guard lock{mutex_};
  position_ = taken_position_ = next_position_ = position;
}

std::uint64_t gradient_sum::position() const {
  std::lock_guard lock{mutex_};
  return position_;
}

std::uint64_t gradient_sum::taken_position() const {
  std::lock_guard lock{mutex_};
  return taken_position_;
}

// -- two vectors ----------------------------------------------------------------------------------

separate_sum::separate_sum(std::vector<torch::Tensor> parameters)
  : gradient_sum(std::move(parameters)) {
  torch::NoGradGuard guard;
  gradient_ = new_tensor(); // needs no memory before the first pass clears it
  bind(gradient_);
}

double separate_sum::begin_pass(double scale) {
  torch::NoGradGuard guard;
  {
    std::lock_guard lock{mutex_};
    if (last_pass_ > 0) {
      if (!earlier_.values.defined()) {
        earlier_ = new_vector();
        earlier_.values.copy_(gradient_).mul_(static_cast<double>(last_pass_));
      } else {
        earlier_.values.add_(gradient_, static_cast<double>(last_pass_));
      }
      last_pass_ = 0;
      staging().mark();
    }
  }
  gradient_.zero_(); // no other thread reads it at this point
  return scale_ = scale;
}

void separate_sum::add(const torch::Tensor& gradient) {
  torch::NoGradGuard guard;
  gradient_.add_(gradient.to(gradient_.device()));
}

gradient_sum::outcome separate_sum::end_pass(std::uint64_t samples, bool finite_loss) {
  torch::NoGradGuard guard;
  if (scale_ != 1)
    gradient_.mul_(1 / scale_);
  bool finite = finite_loss && is_finite(gradient_);
  std::lock_guard lock{mutex_};
  position_ = next_position_;
  if (!finite)
    return {false, 0};
  last_pass_ = samples;
  staging().mark();
  samples_.fetch_add(samples);
  return {true, 0};
}

torch::Tensor separate_sum::take_mean() {
  torch::NoGradGuard guard;
  std::lock_guard lock{mutex_};
  auto samples = static_cast<double>(samples_.exchange(0));
  if (samples == 0)
    return {};
  auto mean = gradient_; // of the only pass since the last step, normally
  if (auto& earlier = earlier_.values; earlier.defined()) {
    add_last_pass();
    mean = earlier.div_(samples).clone();
  }
  empty();
  return mean;
}

std::uint64_t separate_sum::take_mean(std::span<float> out) {
  torch::NoGradGuard guard;
  std::lock_guard lock{mutex_};
  auto samples = samples_.exchange(0);
  auto to = view_of(out);
  if (samples > 0) {
    write_sum(to);
    to.div_(static_cast<double>(samples));
  } else {
    to.zero_();
  }
  empty();
  return samples;
}

std::optional<learner::mean_gradient> separate_sum::take_vector() {
  torch::NoGradGuard guard;
  std::lock_guard lock{mutex_};
  if (!earlier_.memory)
    return std::nullopt;
  auto samples = samples_.exchange(0);
  add_last_pass();
  earlier_.values.div_(static_cast<double>(samples));
  learner::mean_gradient mean{std::move(earlier_.memory), samples};
  empty();
  return mean;
}

std::uint64_t separate_sum::drop() {
  std::lock_guard lock{mutex_};
  auto samples = samples_.exchange(0);
  empty();
  return samples;
}

/// Makes the earlier passes all passes.
void separate_sum::add_last_pass() {
  if (last_pass_ == 0)
    return; // the gradient may have values that are not finite
  earlier_.values.add_(gradient_, static_cast<double>(last_pass_));
  last_pass_ = 0;
  staging().mark();
}

/// Writes Σ b·∇ of all passes to host memory. REQUIRES: there was at least one pass.
void separate_sum::write_sum(torch::Tensor to) {
  auto last = static_cast<double>(last_pass_);
  auto& earlier = earlier_.values;
  if (!earlier.defined()) {
    staging().to_host_since_mark(gradient_, to);
    to.mul_(last);
  } else if (last_pass_ > 0 && gradient_.is_cpu()) {
    torch::add_out(to, earlier, gradient_, last);
  } else {
    add_last_pass();
    staging().to_host_since_mark(earlier, to);
  }
}

void separate_sum::empty() {
  taken_position_ = position_;
  last_pass_ = 0;
  earlier_ = {};
}

partial_gradient separate_sum::copy() {
  torch::NoGradGuard guard;
  std::lock_guard lock{mutex_};
  if (samples_.load() == 0)
    return {};
  auto sum = std::make_shared<float_vector>(static_cast<std::size_t>(size()));
  write_sum(view_of(std::span<float>{*sum}));
  return {std::move(sum), samples_.load(), 0, 1};
}

status separate_sum::load(const partial_gradient& partial) {
  if (!partial.sum || partial.sum->size() != static_cast<std::size_t>(size())
      || partial.passes != 0 || partial.samples == 0)
    return failure{ec::malformed, "its gradient was accumulated otherwise"};
  torch::NoGradGuard guard;
  std::lock_guard lock{mutex_};
  earlier_ = new_vector();
  staging().to_device(view_of(std::span<const float>{*partial.sum}), earlier_.values);
  staging().mark();
  last_pass_ = 0;
  samples_ = partial.samples;
  return done{};
}

// -- one vector -----------------------------------------------------------------------------------

in_place_sum::in_place_sum(std::vector<torch::Tensor> parameters)
  : gradient_sum(std::move(parameters)) {}

double in_place_sum::begin_pass(double scale) {
  torch::NoGradGuard guard;
  std::lock_guard lock{mutex_};
  in_pass_ = true;
  dropped_ = false;
  if (!sum_.values.defined()) {
    sum_ = new_vector();
    bind(sum_.values);
  }
  if (passes_ == 0) {
    sum_.values.zero_();
    scale_ = scale;
  }
  return scale_;
}

void in_place_sum::add(const torch::Tensor& gradient) {
  torch::NoGradGuard guard;
  sum_.values.add_(gradient.to(sum_.values.device()));
}

gradient_sum::outcome in_place_sum::end_pass(std::uint64_t samples, bool finite_loss) {
  torch::NoGradGuard guard;
  bool finite =
    finite_loss
    && is_finite(sum_.values); // no other thread uses the values before in_pass_ is reset
  std::lock_guard lock{mutex_};
  in_pass_ = false;
  position_ = next_position_;
  if (!finite)
    return {false, empty()};
  if (dropped_) // together with earlier passes, which are still in the sum
    return {true, samples};
  ++passes_;
  staging().mark();
  samples_.fetch_add(samples);
  return {true, 0};
}

torch::Tensor in_place_sum::take_mean() {
  torch::NoGradGuard guard;
  std::lock_guard lock{mutex_};
  WAGGLE_CHECK(!in_pass_, "the gradient is taken in the middle of a pass");
  if (samples_.load() == 0)
    return {};
  sum_.values.div_(divisor());
  empty();
  return sum_.values;
}

std::uint64_t in_place_sum::take_mean(std::span<float> out) {
  torch::NoGradGuard guard;
  std::lock_guard lock{mutex_};
  WAGGLE_CHECK(!in_pass_, "the gradient is taken in the middle of a pass");
  auto to = view_of(out);
  if (samples_.load() > 0) {
    staging().to_host_since_mark(sum_.values, to);
    to.div_(divisor());
  } else {
    to.zero_();
  }
  return empty();
}

std::optional<learner::mean_gradient> in_place_sum::take_vector() {
  torch::NoGradGuard guard;
  std::lock_guard lock{mutex_};
  WAGGLE_CHECK(!in_pass_, "the gradient is taken in the middle of a pass");
  if (!sum_.memory || samples_.load() == 0)
    return std::nullopt;
  sum_.values.div_(divisor());
  auto memory = std::move(sum_.memory);
  sum_ = {};
  return learner::mean_gradient{std::move(memory), empty()};
}

std::uint64_t in_place_sum::drop() {
  std::lock_guard lock{mutex_};
  dropped_ = in_pass_;
  return empty();
}

partial_gradient in_place_sum::copy() {
  torch::NoGradGuard guard;
  std::lock_guard lock{mutex_};
  WAGGLE_CHECK(!in_pass_, "the gradient is copied in the middle of a pass");
  if (samples_.load() == 0)
    return {};
  auto sum = std::make_shared<float_vector>(static_cast<std::size_t>(size()));
  staging().to_host_since_mark(sum_.values, view_of(std::span<float>{*sum}));
  return {std::move(sum), samples_.load(), passes_, scale_};
}

status in_place_sum::load(const partial_gradient& partial) {
  if (!partial.sum || partial.sum->size() != static_cast<std::size_t>(size())
      || partial.passes == 0)
    return failure{ec::malformed, "its gradient was accumulated otherwise"};
  torch::NoGradGuard guard;
  std::lock_guard lock{mutex_};
  sum_ = new_vector();
  staging().to_device(view_of(std::span<const float>{*partial.sum}), sum_.values);
  staging().mark();
  bind(sum_.values);
  scale_ = partial.scale;
  passes_ = partial.passes;
  samples_ = partial.samples;
  return done{};
}

std::uint64_t in_place_sum::empty() {
  taken_position_ = position_;
  passes_ = 0;
  return samples_.exchange(0);
}

} // namespace waggle
