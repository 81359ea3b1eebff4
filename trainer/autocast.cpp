#include "trainer/autocast.hpp"

#include <torch/version.h>

namespace waggle {

namespace {

// LibTorch 2.4 has functions for any device, and deprecates those for each.
#if TORCH_VERSION_MAJOR * 100 + TORCH_VERSION_MINOR >= 204
torch::DeviceType kind(bool on_gpu) {
  return on_gpu ? torch::kCUDA : torch::kCPU;
}

void enable(bool on_gpu, bool enabled) {
  at::autocast::set_autocast_enabled(kind(on_gpu), enabled);
}

void use_type(bool on_gpu, torch::ScalarType type) {
  at::autocast::set_autocast_dtype(kind(on_gpu), type);
}
#else
void enable(bool on_gpu, bool enabled) {
  if (on_gpu)
    at::autocast::set_enabled(enabled);
  else
    at::autocast::set_cpu_enabled(enabled);
}

void use_type(bool on_gpu, torch::ScalarType type) {
  if (on_gpu)
    at::autocast::set_autocast_gpu_dtype(type);
  else
    at::autocast::set_autocast_cpu_dtype(type);
}
#endif

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
  use_type(on_gpu_, format == precision::float16 ? torch::kHalf : torch::kBFloat16);
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
