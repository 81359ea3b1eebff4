#pragma once

// Internal to trainer/.

#include <atomic>
#include <cstdint>
#include <mutex>
#include <utility>

#include <torch/torch.h>

#include "trainer/host_staging.hpp"

namespace waggle {

/// The flat parameters of a model: one tensor that passes read and the optimizer changes, or, if
/// offloaded, two. Then the optimizer changes the master copy in host memory, where its statistics
/// are, too, and every pass begins with a copy of the newest parameters to its own device.
///
/// One thread changes the parameters; another one may call `refresh` at the same time.
class parameter_copies {
public:
  /// `working`: what passes read, already initialized.
  parameter_copies(torch::Tensor working, bool offload)
    : working_(std::move(working)),
      master_(offload ? host_memory_for(working_.device(), working_.sizes(), working_.scalar_type())
                      : working_),
      offloaded_(offload), staging_(working_.device()) {
    if (offloaded_)
      staging_.to_host(working_, master_);
  }

  [[nodiscard]] const torch::Tensor& working() const { return working_; }
  /// What the optimizer changes, states contain and rounds average. Only the changing thread may
  /// read it.
  [[nodiscard]] const torch::Tensor& master() const { return master_; }

  /// Calls `f` with the master copy, which it may change.
  template <class F>
  void change(F f) {
    std::lock_guard lock{changing_};
    staging_.wait(); // for the copy that `refresh` began
    f(master_);
    version_.fetch_add(1);
  }
  /// Before a pass. If the last change is complete and not copied yet, copies it; if another one
  /// has begun meanwhile, waits for its end. So a pass misses at most the change that is being made
  /// while it begins. On a GPU the copy may still run when this returns; what this thread enqueues
  /// afterwards waits for it.
  void refresh() {
    if (!offloaded_ || copied_ == version_.load())
      return;
    std::lock_guard lock{changing_};
    copied_ = version_.load();
    staging_.begin_to_device(master_, working_); // `change` waits for its end
  }

private:
  torch::Tensor working_;
  torch::Tensor master_; // the same tensor, unless offloaded
  bool offloaded_;
  host_staging staging_;
  std::mutex changing_; // guards master_
  std::atomic<std::uint64_t> version_{0};
  std::uint64_t copied_ = 0; // of the passes' thread
};

} // namespace waggle
