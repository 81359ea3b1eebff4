#include "trainer/host_staging.hpp"

#include <algorithm>
#include <cstring>

#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include "runtime/core/check.hpp"

namespace waggle {

namespace {

c10::impl::VirtualGuardImpl functions_of(const torch::Device& device) {
  return c10::impl::VirtualGuardImpl{device.type()};
}

/// Returns whether a plain copy was enough.
bool copied_in_host_memory(const torch::Tensor& from, const torch::Tensor& to) {
  WAGGLE_CHECK(from.is_contiguous() && to.is_contiguous(), "a staged tensor is contiguous");
  WAGGLE_CHECK(from.dtype() == to.dtype() && from.numel() == to.numel(),
               "staged tensors have the same type and number of values");
  if (!from.is_cpu() || !to.is_cpu())
    return false;
  to.copy_(from.view_as(to));
  return true;
}

void copy_memory(const torch::Tensor& from, const torch::Tensor& to) {
  std::memcpy(to.data_ptr(), from.data_ptr(), from.nbytes());
}

/// The values of a tensor as parts that fit into a buffer.
class parts_of {
public:
  parts_of(const torch::Tensor& values, std::size_t buffer)
    : flat_(values.view({-1})),
      length_(std::max<std::int64_t>(static_cast<std::int64_t>(buffer / values.itemsize()), 1)) {}

  [[nodiscard]] std::size_t size() const {
    return static_cast<std::size_t>((flat_.numel() + length_ - 1) / length_);
  }
  [[nodiscard]] torch::Tensor operator[](std::size_t which) const {
    auto begin = static_cast<std::int64_t>(which) * length_;
    return flat_.narrow(0, begin, std::min(length_, flat_.numel() - begin));
  }

private:
  torch::Tensor flat_;
  std::int64_t length_;
};

} // namespace

torch::Tensor host_memory_for(const torch::Device& device, torch::IntArrayRef sizes,
                              torch::ScalarType type) {
  return torch::empty(sizes, torch::TensorOptions{}.dtype(type).pinned_memory(device.is_cuda()));
}

torch::Tensor view_of(std::span<const float> values) {
  return torch::from_blob(const_cast<float*>(values.data()),
                          {static_cast<std::int64_t>(values.size())});
}

host_staging::host_staging(torch::Device device, std::size_t buffer)
  : device_(device), buffer_(buffer) {}

host_staging::~host_staging() {
  try {
    wait();
  } catch (const c10::Error&) {
    // The device has failed, and with it all copies.
  }
}

// -- the order of the work on the device ----------------------------------------------------------

c10::Stream host_staging::current_stream() const {
  return functions_of(device_).getStream(device_);
}

c10::Event host_staging::enqueued_so_far() const {
  c10::Event event{device_.type()};
  event.record(current_stream());
  return event;
}

void host_staging::mark() {
  if (device_.is_cpu())
    return;
  std::lock_guard lock{mutex_};
  mark_ = enqueued_so_far();
}

/// Both side streams, without work that this thread would wait for later.
std::array<host_staging::side_stream, 2>& host_staging::idle_side_streams() {
  if (!side_streams_) {
    auto device = functions_of(device_);
    side_streams_.emplace(std::array{side_stream{device.getStreamFromGlobalPool(device_)},
                                     side_stream{device.getStreamFromGlobalPool(device_)}});
  }
  for (auto& each : *side_streams_) {
    each.stream.synchronize();
    each.borrowed.reset();
  }
  return *side_streams_;
}

/// What this thread enqueues from now on waits for the side stream, which writes to `written`.
void host_staging::let_this_thread_wait(const side_stream& of, const torch::Tensor& written) const {
  c10::Event copied{device_.type()};
  copied.record(of.stream);
  copied.block(current_stream());
  // The memory may be used again only afterwards, even if the tensor is destroyed now.
  functions_of(device_).recordDataPtrOnStream(written.storage().data_ptr(), of.stream);
}

void host_staging::wait() {
  if (device_.is_cpu())
    return;
  std::lock_guard lock{mutex_};
  if (side_streams_)
    (void)idle_side_streams();
}

// -- copies ---------------------------------------------------------------------------------------

/// The buffer, as a tensor like `values`.
torch::Tensor host_staging::buffer_of(side_stream& of, const torch::Tensor& values) const {
  auto bytes = static_cast<std::int64_t>(values.nbytes());
  if (!of.buffer.defined() || of.buffer.numel() < bytes)
    of.buffer = host_memory_for(device_, {bytes}, torch::kUInt8);
  return of.buffer.narrow(0, 0, bytes).view(values.scalar_type());
}

void host_staging::copy_to_host(const torch::Tensor& from, const torch::Tensor& to,
                                const c10::Event& after) {
  auto& side_streams = idle_side_streams();
  for (auto& side_stream : side_streams)
    after.block(side_stream.stream);
  parts_of source{from, buffer_};
  parts_of target{to, buffer_};
  auto lane_of = [&side_streams](std::size_t part) -> side_stream& {
    return side_streams[part % 2];
  };
  auto collect = [&](std::size_t part) {
    lane_of(part).stream.synchronize();
    auto values = target[part];
    copy_memory(buffer_of(lane_of(part), values), values);
  };
  for (std::size_t part = 0; part < source.size(); ++part) {
    {
      c10::StreamGuard on{lane_of(part).stream};
      auto values = source[part];
      buffer_of(lane_of(part), values).copy_(values, /*non_blocking=*/true);
    }
    if (part > 0)
      collect(part - 1);
  }
  if (source.size() > 0)
    collect(source.size() - 1);
}

void host_staging::to_host(const torch::Tensor& from, const torch::Tensor& to) {
  torch::NoGradGuard guard;
  if (copied_in_host_memory(from, to))
    return;
  std::lock_guard lock{mutex_};
  copy_to_host(from, to, enqueued_so_far());
}

void host_staging::to_host_since_mark(const torch::Tensor& from, const torch::Tensor& to) {
  torch::NoGradGuard guard;
  if (copied_in_host_memory(from, to))
    return;
  std::lock_guard lock{mutex_};
  WAGGLE_CHECK(mark_, "there is no mark");
  copy_to_host(from, to, *mark_);
}

torch::Tensor host_staging::to_host(const torch::Tensor& from) {
  if (from.is_cpu())
    return from;
  auto to = torch::empty(from.sizes(), torch::TensorOptions{}.dtype(from.dtype()));
  to_host(from, to);
  return to;
}

void host_staging::to_device(const torch::Tensor& from, const torch::Tensor& to) {
  torch::NoGradGuard guard;
  if (copied_in_host_memory(from, to))
    return;
  std::lock_guard lock{mutex_};
  auto& side_streams = idle_side_streams();
  auto before = enqueued_so_far();
  for (auto& side_stream : side_streams)
    before.block(side_stream.stream);
  parts_of source{from, buffer_};
  parts_of target{to, buffer_};
  for (std::size_t part = 0; part < source.size(); ++part) {
    auto& side_stream = side_streams[part % side_streams.size()];
    if (part >= side_streams.size())
      side_stream.stream.synchronize(); // it may still copy from its buffer
    auto values = source[part];
    auto buffer = buffer_of(side_stream, values);
    copy_memory(values, buffer);
    c10::StreamGuard on{side_stream.stream};
    target[part].copy_(buffer, /*non_blocking=*/true);
  }
  for (const auto& side_stream : side_streams)
    let_this_thread_wait(side_stream, to);
}

torch::Tensor host_staging::to_device(const torch::Tensor& from) {
  if (from.device() == device_)
    return from;
  auto to = torch::empty(from.sizes(), torch::TensorOptions{}.dtype(from.dtype()).device(device_));
  to_device(from, to);
  return to;
}

void host_staging::begin_to_device(const torch::Tensor& from, const torch::Tensor& to) {
  torch::NoGradGuard guard;
  if (copied_in_host_memory(from, to))
    return;
  std::lock_guard lock{mutex_};
  auto& side_stream = idle_side_streams().front();
  enqueued_so_far().block(side_stream.stream);
  side_stream.borrowed = from;
  {
    c10::StreamGuard on{side_stream.stream};
    to.copy_(from.view_as(to), /*non_blocking=*/true);
  }
  let_this_thread_wait(side_stream, to);
}

} // namespace waggle
