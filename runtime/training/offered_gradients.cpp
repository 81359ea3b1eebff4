#include "runtime/training/offered_gradients.hpp"

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

#include "runtime/core/check.hpp"
#include "runtime/core/vectorized.hpp"

namespace waggle {

namespace {

// Values between two looks at whether all were finite.
constexpr std::size_t block = 1U << 12U;
constexpr std::uint32_t infinity_bits = 0x7f800000U;

WAGGLE_VECTORIZED
bool is_finite(const float* values, std::size_t n) {
  std::uint32_t bad = 0;
  for (std::size_t i = 0; i < n; ++i)
    bad += static_cast<std::uint32_t>((std::bit_cast<std::uint32_t>(values[i]) & infinity_bits)
                                      == infinity_bits);
  return bad == 0;
}

/// Returns whether the values are finite; adds them in any case. One loop: memory is the limit.
WAGGLE_VECTORIZED
bool add_scaled(float* __restrict sum, float sum_scale, const float* __restrict values, float scale,
                std::size_t n) {
  std::uint32_t bad = 0;
  for (std::size_t i = 0; i < n; ++i) {
    bad += static_cast<std::uint32_t>((std::bit_cast<std::uint32_t>(values[i]) & infinity_bits)
                                      == infinity_bits);
    sum[i] = sum[i] * sum_scale + values[i] * scale;
  }
  return bad == 0;
}

/// Calls f(values, offset, n) for each block; null values for zeros. Stops, and returns the offset,
/// where it returns false; otherwise returns the number of values.
template <class F>
std::size_t for_blocks(std::span<const offered_tensor> tensors, F f) {
  std::size_t offset = 0;
  for (const auto& tensor : tensors)
    for (std::size_t i = 0; i < tensor.count;) {
      auto n = std::min(block, tensor.count - i);
      if (!f(tensor.values == nullptr ? nullptr : tensor.values + i, offset, n))
        return offset;
      i += n;
      offset += n;
    }
  return offset;
}

std::ptrdiff_t number(std::size_t n) {
  return static_cast<std::ptrdiff_t>(n);
}

/// Copies the values and multiplies them.
void copy_scaled(std::span<const offered_tensor> tensors, float scale, float* out) {
  for_blocks(tensors, [&](const float* values, std::size_t at, std::size_t n) {
    for (std::size_t i = 0; i < n; ++i)
      out[at + i] = values == nullptr ? 0.0F : values[i] * scale;
    return true;
  });
}

} // namespace

bool all_finite(std::span<const offered_tensor> tensors) {
  std::size_t count = 0;
  for (const auto& tensor : tensors)
    count += tensor.count;
  return for_blocks(tensors,
                    [](const float* values, std::size_t, std::size_t n) {
                      return values == nullptr || is_finite(values, n);
                    })
         == count;
}

offered_gradients::offered_gradients(std::size_t parameters, std::size_t others, gradient_use use,
                                     std::size_t present, bool on_device)
  : parameters_(parameters), other_values_(others), present_values_(present), on_device_(on_device),
    use_(use) {}

/// Without the others.
std::span<const offered_tensor>
offered_gradients::gradient(std::span<const offered_tensor> all) const {
  std::size_t count = 0;
  std::size_t tensors = 0;
  while (count < parameters_)
    count += all[tensors++].count;
  WAGGLE_CHECK(count == parameters_, std::to_string(count));
  return all.first(tensors);
}

offered_gradients::added offered_gradients::add(std::span<const offered_tensor> tensors,
                                                std::uint64_t samples, std::uint64_t passes,
                                                std::uint64_t merges, device_gradient* device) {
  std::lock_guard lock{mutex_};
  position_ = next_position_;
  auto own = gradient(tensors);
  auto others = tensors.subspan(own.size());
  if (auto before = std::exchange(early_, std::nullopt)) {
    auto ended = end_early(*before, tensors, samples);
    if (before->gone)
      return ended;
    samples_ = 0; // as if it had not been offered
  }
  added result{true, true, std::exchange(poisoned_, 0)};
  if (use_ == gradient_use::in_place && passes != passes_ + 1) {
    passes_ = 0;
    return {false, true, result.lost + samples + samples_.exchange(0)};
  }
  if (!all_finite(others))
    return {false, false, result.lost};
  if (use_ == gradient_use::summed) {
    added sum;
    if (device != nullptr)
      add_to(*device, samples);
    else
      sum = add_to_sum(own, samples);
    result.finite = sum.finite;
    result.lost += sum.lost;
    if (sum.finite) {
      auto before = samples_ > 0 ? others_ : std::vector<float>{};
      others_.resize(other_values_);
      copy_scaled(others, 1, others_.data());
      for (auto i = other_values_ - present_values_; i < before.size(); ++i)
        others_[i] = std::max(before[i], others_[i]);
    }
  } else {
    result.finite = device != nullptr || use_ == gradient_use::in_place || all_finite(own);
    lent_.assign(tensors.begin(), tensors.end());
  }
  merges_ = merges;
  result.counts = result.finite;
  if (result.counts) {
    samples_ += samples;
    ++passes_;
  }
  return result;
}

/// The same values as those of one gradient in `take_mean`.
offered_gradients::added offered_gradients::end_early(early_gradient& early,
                                                      std::span<const offered_tensor> tensors,
                                                      std::uint64_t samples) {
  auto& [values, fills, of_samples, merges] = early.given;
  added ended{.taken = true};
  std::size_t begin = 0;
  for (const auto& tensor : fills->failed() ? tensors.first(0) : tensors) {
    auto* to = values->data() + begin;
    if (early.written.contains(begin))
      ended.changed = ended.changed || tensor.values == nullptr
                      || std::memcmp(to, tensor.values, tensor.count * sizeof(float)) != 0;
    else
      copy_scaled({&tensor, 1}, 1, to);
    begin += tensor.count;
  }
  offered_tensor whole{values->data(), begin};
  ended.changed = ended.changed || (samples != of_samples && !fills->failed());
  if (ended.changed || !all_finite({&whole, 1}))
    fills->fail();
  fills->complete(); // or it has failed
  ended.finite = ended.counts = !fills->failed();
  return ended;
}

bool offered_gradients::begin_early(std::uint64_t samples, std::uint64_t merges,
                                    std::shared_ptr<float_vector> to) {
  std::lock_guard lock{mutex_};
  if (samples_ > 0 || use_ != gradient_use::summed || on_device_)
    return false;
  early_ = early_gradient{{std::move(to), std::make_shared<filling>(), samples, merges}};
  position_ = next_position_;
  samples_ = samples;
  return true;
}

void offered_gradients::write_early(std::size_t begin, const offered_tensor& from) {
  auto& to = early_->given; // whose pointers nobody changes
  if (to.fills->ended())
    return;
  if (early_->written.contains(begin)) // others may have the former
    return to.fills->fail();
  copy_scaled({&from, 1}, 1, to.values->data() + begin);
  if (!all_finite({&from, 1}))
    return to.fills->fail();
  early_->written.insert(begin);
  to.fills->filled(begin, begin + from.count);
}

void offered_gradients::fail_early() {
  if (early_)
    early_->given.fills->fail();
}

std::optional<offered_gradients::early> offered_gradients::take_early() {
  std::lock_guard lock{mutex_};
  if (!early_ || std::exchange(early_->gone, true))
    return std::nullopt;
  taken_position_ = position_;
  samples_ = 0;
  return early_->given;
}

void offered_gradients::add_to(device_gradient& device, std::uint64_t samples) {
  auto before = samples_.load();
  if (before == 0)
    device.add_gradient(0, 1);
  else
    device.add_gradient(single_ ? static_cast<float>(before) : 1, static_cast<float>(samples));
  single_ = before == 0;
}

offered_gradients::added offered_gradients::add_to_sum(std::span<const offered_tensor> gradient,
                                                       std::uint64_t samples) {
  auto before = samples_.load();
  auto end = parameters_;
  if (before == 0) {
    sum_.resize(parameters_);
    single_ = true;
    auto copied = for_blocks(gradient, [this](const float* values, std::size_t at, std::size_t n) {
      auto to = sum_.begin() + static_cast<std::ptrdiff_t>(at);
      if (values == nullptr)
        std::fill_n(to, n, 0.0F);
      else
        std::copy_n(values, n, to);
      return values == nullptr || is_finite(values, n);
    });
    return {copied == end, copied == end, 0};
  }
  auto scale_before = single_ ? static_cast<float>(before) : 1.0F;
  auto done = for_blocks(gradient, [&](const float* values, std::size_t at, std::size_t n) {
    static constexpr float zeros[block]{};
    // All values depend on each other, so what is not finite is usually found here, in time.
    if (at == 0 && values != nullptr && !is_finite(values, n))
      return false;
    return add_scaled(sum_.data() + at, scale_before, values == nullptr ? zeros : values,
                      static_cast<float>(samples), n);
  });
  if (done == 0)
    return {false, false, 0}; // `single_` stays
  single_ = false;
  if (done == end)
    return {true, true, 0};
  samples_ = 0;
  return {false, false, before};
}

void offered_gradients::take_away() {
  std::lock_guard lock{mutex_};
  lent_.clear();
}

offered_gradients::taken offered_gradients::take_mean(std::span<float> out,
                                                      const device_gradient* device) {
  std::lock_guard lock{mutex_};
  if (early_ && !early_->gone) { // since take_early was asked
    std::fill(out.begin(), out.end(), 0.0F);
    return {};
  }
  taken_position_ = position_;
  auto samples = samples_.load();
  samples_ = 0;
  auto passes = std::exchange(passes_, 0);
  bool gone = (on_device_ && device == nullptr) || (use_ != gradient_use::summed && lent_.empty());
  if (gone && use_ != gradient_use::lent) // otherwise they would count in each later round
    poisoned_ += samples;
  if (samples == 0 || gone) {
    std::fill(out.begin(), out.end(), 0.0F);
    return {};
  }
  if (use_ == gradient_use::summed) {
    auto divisor = single_ ? 1.0F : static_cast<float>(samples);
    auto own = out.first(parameters_);
    if (device != nullptr)
      device->read_gradient(own);
    const auto* sum = device != nullptr ? own.data() : sum_.data();
    for (std::size_t i = 0; i < parameters_; ++i)
      own[i] = sum[i] / divisor;
    std::ranges::copy(others_, out.begin() + number(parameters_));
    return {samples, merges_};
  }
  auto own = gradient(lent_);
  offered_tensor read{out.data(), parameters_};
  if (device != nullptr)
    device->read_gradient(out.first(parameters_));
  copy_scaled(device != nullptr ? std::span<const offered_tensor>{&read, 1} : own,
              use_ == gradient_use::in_place ? 1 / static_cast<float>(passes) : 1.0F, out.data());
  copy_scaled(std::span{lent_}.subspan(own.size()), 1, out.data() + parameters_);
  offered_tensor mean{out.data(), out.size()};
  if (use_ == gradient_use::in_place && !all_finite({&mean, 1})) {
    std::fill(out.begin(), out.end(), 0.0F);
    poisoned_ += samples;
    not_finite_ = true;
    return {};
  }
  return {samples, merges_};
}

std::uint64_t offered_gradients::drop() {
  std::lock_guard lock{mutex_};
  taken_position_ = position_;
  passes_ = 0;
  if (early_)
    early_->gone = true;
  return samples_.exchange(0) + std::exchange(poisoned_, 0);
}

std::uint64_t offered_gradients::samples_each() const {
  std::lock_guard lock{mutex_};
  return use_ == gradient_use::in_place && passes_ > 0 ? samples_.load() / passes_ : 0;
}

bool offered_gradients::was_not_finite() {
  std::lock_guard lock{mutex_};
  return std::exchange(not_finite_, false);
}

void offered_gradients::keep(std::string position) {
  std::lock_guard lock{mutex_};
  next_position_ = std::move(position);
}

bool offered_gradients::pass_over() {
  std::lock_guard lock{mutex_};
  position_ = next_position_;
  auto early = std::exchange(early_, std::nullopt);
  if (!early)
    return false;
  early->given.fills->fail();
  if (!early->gone)
    samples_ = 0;
  return early->gone;
}

std::string offered_gradients::position() const {
  std::lock_guard lock{mutex_};
  return position_;
}

std::string offered_gradients::taken_position() const {
  std::lock_guard lock{mutex_};
  return taken_position_;
}

void offered_gradients::load_position(std::string position) {
  std::lock_guard lock{mutex_};
  next_position_ = position_ = taken_position_ = std::move(position);
}

partial_gradient offered_gradients::copy(const device_gradient* device) const {
  std::lock_guard lock{mutex_};
  if (use_ != gradient_use::summed || samples_ == 0 || early_)
    return {};
  auto sum = std::make_shared<float_vector>(sum_.begin(), sum_.end());
  sum->resize(parameters_);
  if (device != nullptr)
    device->read_gradient(*sum);
  sum->insert(sum->end(), others_.begin(), others_.end());
  return {std::move(sum), samples_, single_ ? 1U : 0U, 1};
}

status offered_gradients::load(const partial_gradient& partial, device_gradient* device) {
  std::lock_guard lock{mutex_};
  if (use_ != gradient_use::summed || !partial.sum || partial.samples == 0
      || partial.sum->size() != parameters_ + other_values_)
    return failure{ec::malformed, "a gradient of another length, or that is not summed here"};
  auto others = partial.sum->begin() + number(parameters_);
  if (device != nullptr)
    device->write_gradient(std::span{*partial.sum}.first(parameters_));
  else
    sum_.assign(partial.sum->begin(), others);
  others_.assign(others, partial.sum->end());
  single_ = partial.passes == 1;
  samples_ = partial.samples;
  return done{};
}

} // namespace waggle
