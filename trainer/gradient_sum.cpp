#include "trainer/gradient_sum.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include "runtime/core/check.hpp"
#include "runtime/training/update_terms.hpp"

namespace waggle {

namespace {

/// Whether every value is finite: only then their sum is (opposite infinities give NaN).
bool is_finite(const torch::Tensor& values) {
  return std::isfinite(values.sum().item<double>());
}

} // namespace

gradient_sum::gradient_sum(std::vector<torch::Tensor> parameters, bool in_place,
                           std::size_t numbers)
  : parameters_(std::move(parameters)), in_place_(in_place), numbers_(numbers),
    device_(parameters_.front().device()), staging_(device_), computed_(parameters_.size()),
    present_(parameters_.size()), taken_present_(parameters_.size()) {
  torch::NoGradGuard guard;
  for (const auto& p : parameters_) {
    ranges_.push_back({size_, p.numel()});
    size_ += p.numel();
  }
  if (!in_place_)
    bind(new_vector().values); // needs no memory before the first pass clears it
}

gradient_sum::vector gradient_sum::new_vector() const {
  if (!vectors_ || !device_.is_cpu())
    return {torch::empty({size_}, torch::TensorOptions{}.dtype(torch::kFloat32).device(device_)),
            nullptr};
  auto size = static_cast<std::size_t>(size_);
  auto memory = vectors_->take(size + update_terms::value_count(parameters_.size(), numbers_));
  return {view_of(std::span<float>{*memory}.first(size)), memory};
}

void gradient_sum::bind(const torch::Tensor& gradient) {
  bound_ = gradient;
  for (std::size_t i = 0; i < parameters_.size(); ++i)
    parameters_[i].mutable_grad() =
      gradient.narrow(0, ranges_[i].begin, ranges_[i].count).view(parameters_[i].sizes());
}

// -- a pass ---------------------------------------------------------------------------------------

double gradient_sum::begin_pass(double scale) {
  torch::NoGradGuard guard;
  std::unique_lock lock{mutex_};
  computed_.assign(ranges_.size(), false);
  if (in_place_) {
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
  if (last_pass_ > 0 && !sum_.values.defined()) {
    sum_ = new_vector();
    sum_.values.copy_(bound_).mul_(static_cast<double>(last_pass_));
    last_pass_ = 0;
    staging_.mark();
  } else {
    complete_sum();
  }
  lock.unlock();
  bound_.zero_(); // no other thread reads it at this point
  return pass_scale_ = scale;
}

void gradient_sum::add(const torch::Tensor& gradient) {
  torch::NoGradGuard guard;
  bound_.add_(gradient.to(device_));
}

bool gradient_sum::offer(std::uint64_t samples) {
  if (in_place_ || repeats_)
    return false;
  auto whole = new_vector();
  if (!whole.memory)
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

void gradient_sum::computed(std::size_t parameter) {
  repeats_ = repeats_ || computed_[parameter];
  computed_[parameter] = true;
  if (early_ && repeats_) // it may be sent already
    early_->mean.fills->fail();
  else if (early_)
    write_early(parameter);
}

void gradient_sum::write_terms(float_vector& to, const std::vector<bool>& present) const {
  if (numbers_ == 0)
    return;
  update_terms terms{present.size(), numbers_};
  terms.present = present;
  terms.write(std::span{to}.subspan(static_cast<std::size_t>(size_)));
}

std::vector<bool> gradient_sum::taken_present() const {
  std::lock_guard lock{mutex_};
  return taken_present_;
}

/// The same operations as in `end_pass` and `take_mean`, so the same bits. A part that is not
/// finite is not sent.
void gradient_sum::write_early(std::size_t parameter) {
  torch::NoGradGuard guard;
  auto [begin, count] = ranges_[parameter];
  auto to = view_of(std::span<float>{*early_->mean.values}).narrow(0, begin, count);
  to.copy_(bound_.narrow(0, begin, count));
  if (pass_scale_ != 1)
    to.mul_(1 / pass_scale_);
  if (!is_finite(to))
    return early_->mean.fills->fail();
  auto samples = static_cast<double>(early_->mean.samples);
  to.mul_(samples).div_(samples);
  early_->mean.fills->filled(static_cast<std::size_t>(begin),
                             static_cast<std::size_t>(begin + count));
}

gradient_sum::outcome gradient_sum::end_pass(std::uint64_t samples, bool finite_loss) {
  torch::NoGradGuard guard;
  for (std::size_t i = 0; early_ && i < computed_.size(); ++i)
    if (!computed_[i]) // no layer uses it: zeros
      write_early(i);
  if (early_)
    write_terms(*early_->mean.values, computed_);
  if (!in_place_ && pass_scale_ != 1)
    bound_.mul_(1 / pass_scale_);
  // No other thread uses the values before in_pass_ is reset, or last_pass_ set.
  bool finite = finite_loss && is_finite(bound_);
  std::lock_guard lock{mutex_};
  in_pass_ = false;
  position_ = next_position_;
  if (auto early = std::exchange(early_, std::nullopt)) {
    early->mean.fills->complete(); // or it has failed
    if (early->gone)
      return {!early->mean.fills->failed(), 0, true};
    samples_ -= samples; // as if it had not been offered
  }
  if (!finite)
    return {false, in_place_ ? empty() : 0};
  if (dropped_) // together with earlier passes, which are still in the sum
    return {true, samples};
  if (in_place_)
    ++passes_;
  else
    last_pass_ = samples;
  for (std::size_t i = 0; i < computed_.size(); ++i)
    present_[i] = present_[i] || computed_[i];
  staging_.mark();
  samples_.fetch_add(samples);
  return {true, 0};
}

// -- taking it ------------------------------------------------------------------------------------

torch::Tensor gradient_sum::take_mean() {
  torch::NoGradGuard guard;
  std::lock_guard lock{mutex_};
  WAGGLE_CHECK(!in_pass_, "the gradient is taken in the middle of a pass");
  if (samples_ == 0)
    return {};
  auto mean = bound_; // of the only pass since the last step, normally
  if (sum_.values.defined()) {
    complete_sum();
    mean = sum_.values.div_(divisor());
    if (!in_place_) // of which `empty` gives the memory back
      mean = mean.clone();
  }
  empty();
  return mean;
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
  if (early_ && samples_ > 0) {
    empty();
    return early_->mean;
  }
  if (!sum_.memory || samples_ == 0)
    return std::nullopt;
  complete_sum();
  sum_.values.div_(divisor());
  auto memory = std::move(sum_.memory);
  write_terms(*memory, present_);
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
  taken_present_ = std::exchange(present_, std::vector<bool>(ranges_.size()));
  passes_ = 0;
  last_pass_ = 0;
  if (!in_place_)
    sum_ = {};
  if (early_)
    early_->gone = true;
  return samples_.exchange(0);
}

void gradient_sum::complete_sum() {
  if (last_pass_ == 0)
    return; // the gradient may have values that are not finite
  sum_.values.add_(bound_, static_cast<double>(last_pass_));
  last_pass_ = 0;
  staging_.mark();
}

void gradient_sum::write_sum(torch::Tensor to) {
  WAGGLE_CHECK(!early_, "the gradient is copied in the middle of its pass");
  auto last = static_cast<double>(last_pass_);
  const auto& earlier = sum_.values;
  if (!earlier.defined()) {
    staging_.to_host_since_mark(bound_, to);
    to.mul_(last);
  } else if (last_pass_ > 0 && bound_.is_cpu()) {
    torch::add_out(to, earlier, bound_, last);
  } else {
    complete_sum();
    staging_.to_host_since_mark(earlier, to);
  }
}

double gradient_sum::divisor() const {
  return in_place_ ? static_cast<double>(passes_) * scale_ : static_cast<double>(samples_);
}

// -- over a restart -------------------------------------------------------------------------------

partial_gradient gradient_sum::copy() {
  torch::NoGradGuard guard;
  std::lock_guard lock{mutex_};
  WAGGLE_CHECK(!in_pass_, "the gradient is copied in the middle of a pass");
  if (samples_ == 0)
    return {};
  auto size = static_cast<std::size_t>(size_);
  auto sum = std::make_shared<float_vector>(size + present_.size());
  write_sum(view_of(std::span<float>{*sum}.first(size)));
  std::ranges::copy(present_, sum->begin() + size_);
  return {std::move(sum), samples_, passes_, scale_};
}

status gradient_sum::load(const partial_gradient& partial) {
  auto size = static_cast<std::size_t>(size_);
  if (!partial.sum || partial.sum->size() != size + present_.size()
      || (partial.passes > 0) != in_place_ || partial.samples == 0)
    return failure{ec::malformed, "its gradient was accumulated otherwise"};
  torch::NoGradGuard guard;
  std::lock_guard lock{mutex_};
  sum_ = new_vector();
  staging_.to_device(view_of(std::span<const float>{*partial.sum}.first(size)), sum_.values);
  for (std::size_t i = 0; i < present_.size(); ++i)
    present_[i] = (*partial.sum)[size + i] > 0;
  staging_.mark();
  if (in_place_)
    bind(sum_.values);
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

} // namespace waggle
