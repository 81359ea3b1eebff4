#pragma once

#include <functional>
#include <span>

#include <torch/torch.h>

namespace waggle::testing {

/// A device for LibTorch that stands for a GPU: it has streams and events, and its work runs late.
/// A stream does nothing before somebody waits for it, and then only as much as is necessary. So a
/// copy that was ordered wrongly always gives wrong values: here nothing is in time by chance.
///
/// It is LibTorch's PrivateUse1. Its memory is that of the host. Copies, `add_`, `mul_` and `zero_`
/// run late. All other operations wait for the current stream, as `.item()` does on a GPU, and run
/// on the CPU.
struct lazy_device {
  static torch::Device device();
  /// A tensor of zeros on it.
  static torch::Tensor zeros(torch::IntArrayRef sizes, torch::ScalarType type = torch::kFloat32);
  /// The memory of a tensor, as it is at present.
  static std::span<float> memory(const torch::Tensor& tensor);

  /// Appends work to this thread's current stream.
  static void enqueue(std::function<void()> work);
  /// Waits for this thread's current stream.
  static void synchronize();
  /// How many copies used memory of the device that had been freed before they ran.
  static std::size_t copies_in_freed_memory();
};

} // namespace waggle::testing
