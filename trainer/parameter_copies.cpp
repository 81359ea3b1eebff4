#include "trainer/parameter_copies.hpp"

namespace waggle {

namespace {

/// In memory from which a GPU copies without an intermediate buffer.
torch::Tensor in_host_memory(const torch::Tensor& values) {
  auto options = torch::TensorOptions{}.dtype(values.dtype()).pinned_memory(values.is_cuda());
  auto copy = torch::empty(values.sizes(), options);
  copy.copy_(values);
  return copy;
}

} // namespace

parameter_copies::parameter_copies(torch::Tensor working, bool offload)
  : working_(std::move(working)), master_(offload ? in_host_memory(working_) : working_),
    offloaded_(offload) {}

void parameter_copies::refresh() {
  if (!offloaded_ || copied_ == version_.load())
    return;
  torch::NoGradGuard guard;
  std::lock_guard lock{changing_};
  copied_ = version_.load();
  working_.copy_(master_); // ends before the optimizer may change the master copy again
}

} // namespace waggle
