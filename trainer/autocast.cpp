#include "trainer/autocast.hpp"

namespace waggle {

namespace {

void enable(bool on_gpu, bool enabled) {
  if (on_gpu)
    at::autocast::set_enabled(enabled);
  else
    at::autocast::set_cpu_enabled(enabled);
}

} // namespace

status check_precision(precision format, const torch::Device& device) {
  if (format == precision::float16 && !device.is_cuda())
    return failure{
      ec::bad_config,
      "--precision float16 needs a GPU: LibTorch has no float16 products for a CPU; use "
      "bfloat16 or float32"};
  return done{};
}

autocast::autocast(precision format, const torch::Device& device)
  : on_(format != precision::float32), on_gpu_(device.is_cuda()) {
  if (!on_)
    return;
  auto type = format == precision::float16 ? torch::kHalf : torch::kBFloat16;
  if (on_gpu_)
    at::autocast::set_autocast_gpu_dtype(type);
  else
    at::autocast::set_autocast_cpu_dtype(type);
  enable(on_gpu_, true);
  at::autocast::increment_nesting();
}

autocast::~autocast() {
  if (!on_)
    return;
  // The cache holds casts of parameters that the next update changes.
  if (at::autocast::decrement_nesting() == 0)
    at::autocast::clear_cache();
  enable(on_gpu_, false);
}

} // namespace waggle
