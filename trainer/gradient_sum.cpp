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

// -- what both have -------------------------------------------------------------------------------

gradient_sum::gradient_sum(std::vector<torch::Tensor> parameters, bool in_place)
  : parameters_(std::move(parameters)), in_place_(in_place), device_(parameters_.front().device()),
    staging_(device_) {
  for (const auto& p : parameters_) {
    ranges_.push_back({size_, p.numel()});
    size_ += p.numel();
  }
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
  bound_ = gradient;
  for (std::size_t i = 0; i < parameters_.size(); ++i)
    parameters_[i].mutable_grad() =
      gradient.narrow(0, ranges_[i].begin, ranges_[i].count).view(parameters_[i].sizes());
}

void gradient_sum::add(const torch::Tensor& gradient) {
  torch::NoGradGuard guard;
  bound_.add_(gradient.to(device_));
}

std::uint64_t gradient_sum::take_mean(std::span<float> out) {
  torch::NoGradGuard guard;
  std::lock_guard lock{mutex_};
  WAGGLE_CHECK(!in_pass_, "the gradient is taken in the middle of a pass");
  auto to = view_of(out);
  if (samples_ > 0) {
    write_sum(to);
    to.div_(divisor());
  } else {
    to.zero_();
  }
  return empty();
}

std::optional<learner::mean_gradient> gradient_sum::take_vector() {
  torch::NoGradGuard guard;
  std::lock_guard lock{mutex_};
  WAGGLE_CHECK(!in_pass_, "the gradient is taken in the middle of a pass");
  if (!sum_.memory || samples_ == 0)
    return std::nullopt;
  complete_sum();
  sum_.values.div_(divisor());
  auto memory = std::move(sum_.memory);
  sum_ = {};
  return learner::mean_gradient{std::move(memory), empty()};
}

std::uint64_t gradient_sum::drop() {
  std::lock_guard lock{mutex_};
  dropped_ = in_pass_;
  return empty();
}

std::uint64_t gradient_sum::empty() {
  taken_position_ = position_;
  passes_ = 0;
  on_empty();
  return samples_.exchange(0);
}

partial_gradient gradient_sum::copy() {
  torch::NoGradGuard guard;
  std::lock_guard lock{mutex_};
  WAGGLE_CHECK(!in_pass_, "the gradient is copied in the middle of a pass");
  if (samples_ == 0)
    return {};
  auto sum = std::make_shared<float_vector>(static_cast<std::size_t>(size_));
  write_sum(view_of(std::span<float>{*sum}));
  return {std::move(sum), samples_, passes_, scale_};
}

status gradient_sum::load(const partial_gradient& partial) {
  if (!partial.sum || partial.sum->size() != static_cast<std::size_t>(size_)
      || (partial.passes > 0) != in_place_ || partial.samples == 0)
    return failure{ec::malformed, "its gradient was accumulated otherwise"};
  torch::NoGradGuard guard;
  std::lock_guard lock{mutex_};
  sum_ = new_vector();
  staging().to_device(view_of(std::span<const float>{*partial.sum}), sum_.values);
  staging().mark();
  on_load();
  scale_ = partial.scale;
  passes_ = partial.passes;
  samples_ = partial.samples;
  return done{};
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
  : gradient_sum(std::move(parameters), false) {
  torch::NoGradGuard guard;
  bind(new_tensor()); // needs no memory before the first pass clears it
}

double separate_sum::begin_pass(double scale) {
  torch::NoGradGuard guard;
  {
    std::lock_guard lock{mutex_};
    if (last_pass_ > 0 && !sum_.values.defined()) {
      sum_ = new_vector();
      sum_.values.copy_(bound()).mul_(static_cast<double>(last_pass_));
      last_pass_ = 0;
      staging().mark();
    } else {
      complete_sum();
    }
  }
  bound().zero_(); // no other thread reads it at this point
  computed_.assign(ranges().size(), false);
  return pass_scale_ = scale;
}

bool separate_sum::offer(std::uint64_t samples) {
  auto whole = new_vector();
  if (!whole.memory || repeats_)
    return false;
  {
    std::lock_guard lock{mutex_};
    if (samples_.load() > 0)
      return false;
    early_ = early_gradient{{std::move(whole.memory), samples, 0, std::make_shared<filling>()}};
    position_ = next_position_;
    samples_ = samples;
  }
  for (std::size_t i = 0; i < computed_.size(); ++i)
    if (computed_[i])
      write_early(i);
  return true;
}

void separate_sum::computed(std::size_t parameter) {
  repeats_ = repeats_ || computed_[parameter];
  computed_[parameter] = true;
  if (early_ && repeats_) // it may be sent already
    early_->mean.fills->fail();
  else if (early_)
    write_early(parameter);
}

/// The same operations as in `end_pass` and `take_mean`, so the same bits. A part that is not
/// finite is not sent.
void separate_sum::write_early(std::size_t parameter) {
  torch::NoGradGuard guard;
  auto [begin, count] = ranges()[parameter];
  auto to = view_of(std::span<float>{*early_->mean.values}).narrow(0, begin, count);
  to.copy_(bound().narrow(0, begin, count));
  if (pass_scale_ != 1)
    to.mul_(1 / pass_scale_);
  if (!is_finite(to))
    return early_->mean.fills->fail();
  auto samples = static_cast<double>(early_->mean.samples);
  to.mul_(samples).div_(samples);
  early_->mean.fills->filled(static_cast<std::size_t>(begin),
                             static_cast<std::size_t>(begin + count));
}

gradient_sum::outcome separate_sum::end_pass(std::uint64_t samples, bool finite_loss) {
  torch::NoGradGuard guard;
  for (std::size_t i = 0; early_ && i < computed_.size(); ++i)
    if (!computed_[i]) // no layer uses it: zeros
      write_early(i);
  if (pass_scale_ != 1)
    bound().mul_(1 / pass_scale_);
  bool finite = finite_loss && is_finite(bound());
  std::lock_guard lock{mutex_};
  position_ = next_position_;
  if (auto early = std::exchange(early_, std::nullopt)) {
    early->mean.fills->complete(); // or it has failed
    if (early->gone)
      return {!early->mean.fills->failed(), 0, true};
    samples_ -= samples; // as if it had not been offered
  }
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
  if (samples_ == 0)
    return {};
  auto mean = bound(); // of the only pass since the last step, normally
  if (sum_.values.defined()) {
    complete_sum();
    mean = sum_.values.div_(divisor()).clone();
  }
  empty();
  return mean;
}

std::optional<learner::mean_gradient> separate_sum::take_vector() {
  {
    std::lock_guard lock{mutex_};
    if (early_ && samples_ > 0) {
      empty();
      return early_->mean;
    }
  }
  return gradient_sum::take_vector();
}

void separate_sum::complete_sum() {
  if (last_pass_ == 0)
    return; // the gradient may have values that are not finite
  sum_.values.add_(bound(), static_cast<double>(last_pass_));
  last_pass_ = 0;
  staging().mark();
}

void separate_sum::write_sum(torch::Tensor to) {
  WAGGLE_CHECK(!early_, "the gradient is copied in the middle of its pass");
  auto last = static_cast<double>(last_pass_);
  auto& earlier = sum_.values;
  if (!earlier.defined()) {
    staging().to_host_since_mark(bound(), to);
    to.mul_(last);
  } else if (last_pass_ > 0 && bound().is_cpu()) {
    torch::add_out(to, earlier, bound(), last);
  } else {
    complete_sum();
    staging().to_host_since_mark(earlier, to);
  }
}

void separate_sum::on_empty() {
  last_pass_ = 0;
  sum_ = {};
  if (early_)
    early_->gone = true;
}

// -- one vector -----------------------------------------------------------------------------------

in_place_sum::in_place_sum(std::vector<torch::Tensor> parameters)
  : gradient_sum(std::move(parameters), true) {}

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

gradient_sum::outcome in_place_sum::end_pass(std::uint64_t samples, bool finite_loss) {
  torch::NoGradGuard guard;
  // No other thread uses the values before in_pass_ is reset.
  bool finite = finite_loss && is_finite(sum_.values);
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
  if (samples_ == 0)
    return {};
  sum_.values.div_(divisor());
  empty();
  return sum_.values;
}

void in_place_sum::write_sum(torch::Tensor to) {
  staging().to_host_since_mark(sum_.values, to);
}

} // namespace waggle
