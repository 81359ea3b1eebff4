#pragma once

// Internal to trainer/: includes LibTorch.

#include <array>
#include <cstddef>
#include <mutex>
#include <optional>
#include <span>

#include <c10/core/Event.h>
#include <c10/core/Stream.h>
#include <torch/torch.h>

namespace waggle {

/// Host memory from which `device` copies without an intermediate buffer: pinned for a GPU. Its
/// values are unspecified.
torch::Tensor host_memory_for(const torch::Device& device, torch::IntArrayRef sizes,
                              torch::ScalarType type);

/// A flat float32 tensor in host memory that belongs to the caller. It must not change through it
/// if the values are shared: torch has no read-only tensors.
torch::Tensor view_of(std::span<const float> values);

/// Copies tensors between a device and host memory. If the device is a CPU, or both tensors are in
/// host memory, these are plain copies, and where none is needed there is none. On a GPU they run
/// on two streams of their own ("side streams"), beside what the device computes. Ordinary host
/// memory is copied through a pinned buffer of each stream, part by part, so that the device copies
/// one part while this thread copies another:
///
///     compute stream   … mark …  passes  …
///     side stream 0         └──▶ part 0 │ part 2 │
///     side stream 1         └──▶         part 1 │ part 3 │
///     this thread                        part 0, part 1, part 2, part 3 from a buffer to `to`
///
/// "What this thread has enqueued" is the work on its current stream of the device. All tensors
/// must be contiguous; both tensors of a copy have the same type and number of values.
///
/// Thread-safe: copies of several threads run one after another. Uses functions that LibTorch has
/// for every device (c10/core/Stream.h), so that it compiles without CUDA.
class host_staging {
public:
  static constexpr std::size_t default_buffer = std::size_t{4} << 20U;

  /// `buffer`: bytes of each of the two pinned buffers, which exist from the first use on. Longer
  /// ones cost memory; a copy to or from shorter ones takes less time than to start it.
  explicit host_staging(torch::Device device, std::size_t buffer = default_buffer);
  /// Waits for copies that still run.
  ~host_staging();
  host_staging(const host_staging&) = delete;
  host_staging& operator=(const host_staging&) = delete;

  // -- to the host: when they return, `to` has the values

  /// Waits for what this thread has enqueued.
  void to_host(const torch::Tensor& from, const torch::Tensor& to);
  /// In new memory; a tensor that is in host memory is returned itself.
  [[nodiscard]] torch::Tensor to_host(const torch::Tensor& from);
  /// Waits only for what the thread that called `mark` last had enqueued by then.
  void to_host_since_mark(const torch::Tensor& from, const torch::Tensor& to);
  void mark();

  // -- to the device: what this thread enqueues afterwards waits for the copy

  /// Begins after what this thread has enqueued, which may still use `to`. When it returns, `from`
  /// may change.
  void to_device(const torch::Tensor& from, const torch::Tensor& to);
  /// In new memory on the device; a tensor that is there already is returned itself.
  [[nodiscard]] torch::Tensor to_device(const torch::Tensor& from);
  /// Does not wait for the copy: `from` must not change before the next `wait`, and is kept alive
  /// until then. REQUIRES: it is host_memory_for the device.
  void begin_to_device(const torch::Tensor& from, const torch::Tensor& to);
  /// Waits until all copies have ended.
  void wait();

private:
  /// A side stream with its buffer.
  struct side_stream {
    c10::Stream stream;
    torch::Tensor buffer{};   // bytes; the stream may still copy from it
    torch::Tensor borrowed{}; // what begin_to_device reads
  };

  // REQUIRE: the lock is held.
  [[nodiscard]] c10::Stream current_stream() const;
  [[nodiscard]] c10::Event enqueued_so_far() const;
  std::array<side_stream, 2>& idle_side_streams();
  void let_this_thread_wait(const side_stream& of, const torch::Tensor& written) const;
  [[nodiscard]] torch::Tensor buffer_of(side_stream& of, const torch::Tensor& values) const;
  void copy_to_host(const torch::Tensor& from, const torch::Tensor& to, const c10::Event& after);

  const torch::Device device_;
  const std::size_t buffer_;
  std::mutex mutex_; // guards what follows; a CPU needs none of it
  std::optional<c10::Event> mark_;
  std::optional<std::array<side_stream, 2>> side_streams_; // none before the first use
};

} // namespace waggle
