#include "trainer/parameter_copies.hpp"

namespace waggle {

parameter_copies::parameter_copies(torch::Tensor working, bool offload)
  : working_(std::move(working)),
    master_(offload ? host_memory_for(working_.device(), working_.sizes(), working_.scalar_type())
                    : working_),
    offloaded_(offload), staging_(working_.device()) {
  if (offloaded_)
    staging_.to_host(working_, master_);
}

void parameter_copies::refresh() {
  if (!offloaded_ || copied_ == version_.load())
    return;
  std::lock_guard lock{changing_};
  copied_ = version_.load();
  staging_.begin_to_device(master_, working_); // `change` waits for its end
}

} // namespace waggle
