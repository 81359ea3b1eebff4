#include "tests/trainer/lazy_device.hpp"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include <ATen/EmptyTensor.h>
#include <ATen/native/CPUFallback.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/view_native.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <torch/library.h>
#include <torch/version.h>

namespace waggle::testing {

namespace {

constexpr auto kind = c10::DeviceType::PrivateUse1;

c10::Device only_device() {
  return {kind, 0};
}

// -- streams --------------------------------------------------------------------------------------

/// How far a stream is: a number of pieces of work.
struct point {
  c10::StreamId stream = 0;
  std::uint64_t count = 0;
};

class streams {
public:
  static streams& all() {
    static streams instance;
    return instance;
  }

  void enqueue(c10::StreamId on, std::function<void()> work) {
    std::lock_guard lock{mutex_};
    queues_[on].waiting.push_back(std::move(work));
  }
  point end_of(c10::StreamId of) {
    std::lock_guard lock{mutex_};
    auto& queue = queues_[of];
    return {of, queue.done + queue.waiting.size()};
  }
  /// Runs what is necessary, which may be work of other streams.
  void advance_to(point until) {
    std::lock_guard lock{mutex_};
    auto& queue = queues_[until.stream];
    while (queue.done < until.count) {
      auto work = std::move(queue.waiting.front());
      queue.waiting.pop_front();
      work();
      ++queue.done;
    }
  }

  // -- memory
  void* allocate(std::size_t bytes) {
    std::lock_guard lock{mutex_};
    auto* memory = new std::byte[bytes + 1];
    std::memset(memory, 0xFF, bytes); // as a float: not a number
    blocks_[memory].bytes = bytes;
    return memory;
  }
  /// At once, or when the streams have come so far on which the memory was recorded.
  void free(void* memory) {
    std::lock_guard lock{mutex_};
    blocks_.at(static_cast<std::byte*>(memory)).freed = true;
    std::erase_if(blocks_, [this](auto& item) {
      auto& [begin, block] = item;
      auto in_use = [this](point use) { return queues_[use.stream].done < use.count; };
      if (!block.freed || std::any_of(block.uses.begin(), block.uses.end(), in_use))
        return false;
      delete[] begin;
      return true;
    });
  }
  void record(void* memory, c10::StreamId on) {
    std::lock_guard lock{mutex_};
    blocks_.at(static_cast<std::byte*>(memory)).uses.push_back(end_of(on));
  }
  /// Counts it if the memory of the device has been freed.
  bool is_allocated(const std::byte* memory) {
    std::lock_guard lock{mutex_};
    auto after = blocks_.upper_bound(const_cast<std::byte*>(memory));
    bool found = after != blocks_.begin()
                 && memory <= std::prev(after)->first + std::prev(after)->second.bytes;
    freed_ += found ? 0 : 1;
    return found;
  }
  std::size_t copies_in_freed_memory() {
    std::lock_guard lock{mutex_};
    return freed_;
  }

private:
  struct queue {
    std::deque<std::function<void()>> waiting;
    std::uint64_t done = 0;
  };
  struct block {
    std::size_t bytes = 0;
    std::vector<point> uses{};
    bool freed = false;
  };
  std::recursive_mutex mutex_;
  std::map<c10::StreamId, queue> queues_;
  std::map<std::byte*, block> blocks_;
  std::size_t freed_ = 0;
};

thread_local c10::StreamId current = 0;

class guard_functions final : public c10::impl::DeviceGuardImplInterface {
public:
  c10::DeviceType type() const override { return kind; }
  c10::Device exchangeDevice(c10::Device) const override { return only_device(); }
  c10::Device getDevice() const override { return only_device(); }
  void setDevice(c10::Device) const override {}
  void uncheckedSetDevice(c10::Device) const noexcept override {}
  c10::DeviceIndex deviceCount() const noexcept override { return 1; }

  c10::Stream getStream(c10::Device) const noexcept override { return stream(current); }
  c10::Stream getStreamFromGlobalPool(c10::Device, bool) const override {
    static std::atomic<c10::StreamId> last{0};
    return stream(++last);
  }
  c10::Stream exchangeStream(c10::Stream next) const noexcept override {
    return stream(std::exchange(current, next.id()));
  }
  void synchronizeStream(const c10::Stream& of) const override {
    streams::all().advance_to(streams::all().end_of(of.id()));
  }

  void record(void** event, const c10::Stream& on, c10::DeviceIndex,
              c10::EventFlag) const override {
    delete static_cast<point*>(*event);
    *event = new point{streams::all().end_of(on.id())};
  }
  void block(void* event, const c10::Stream& waits) const override {
    streams::all().enqueue(
      waits.id(), [until = *static_cast<point*>(event)] { streams::all().advance_to(until); });
  }
  void destroyEvent(void* event, c10::DeviceIndex) const noexcept override {
    delete static_cast<point*>(event);
  }
  void recordDataPtrOnStream(const c10::DataPtr& memory, const c10::Stream& on) const override {
    streams::all().record(memory.get(), on.id());
  }

private:
  static c10::Stream stream(c10::StreamId id) {
    return c10::Stream{c10::Stream::UNSAFE, only_device(), id};
  }
};

// -- tensors --------------------------------------------------------------------------------------

struct memory_of_device final : c10::Allocator {
#if TORCH_VERSION_MAJOR > 1
  c10::DataPtr allocate(std::size_t bytes) override {
    return block_of(bytes);
  }
  void copy_data(void* to, const void* from, std::size_t bytes) const override {
    default_copy_data(to, from, bytes);
  }
#else
  c10::DataPtr allocate(std::size_t bytes) const override {
    return block_of(bytes);
  }
#endif
  static c10::DataPtr block_of(std::size_t bytes) {
    auto* memory = streams::all().allocate(bytes);
    return {memory, memory, &release, only_device()};
  }
  c10::DeleterFnPtr raw_deleter() const override {
    return &release;
  }
  static void release(void* memory) {
    streams::all().free(memory);
  }
};

c10::Allocator* allocator() {
  static memory_of_device instance;
  return &instance;
}

const c10::DispatchKeySet keys{c10::DispatchKey::PrivateUse1};

at::Tensor make(at::IntArrayRef size, c10::optional<at::ScalarType> type,
                c10::optional<at::Layout> /*layout*/, c10::optional<at::Device> /*device*/,
                c10::optional<bool> /*pinned*/, c10::optional<at::MemoryFormat> format) {
  return at::detail::empty_generic(size, allocator(), keys, type.value_or(at::ScalarType::Float),
                                   format);
}

at::Tensor make_strided(at::IntArrayRef size, at::IntArrayRef stride,
                        c10::optional<at::ScalarType> type, c10::optional<at::Layout> /*layout*/,
                        c10::optional<at::Device> /*device*/, c10::optional<bool> /*pinned*/) {
  return at::detail::empty_strided_generic(size, stride, allocator(), keys,
                                           type.value_or(at::ScalarType::Float));
}

const std::byte* bytes_of(const at::Tensor& tensor) {
  return static_cast<const std::byte*>(tensor.data_ptr());
}

/// Enqueues a copy. As on a GPU it keeps neither tensor alive.
at::Tensor copy_from(const at::Tensor& from, const at::Tensor& to, bool non_blocking) {
  TORCH_CHECK(from.is_contiguous() && to.is_contiguous() && from.dtype() == to.dtype(),
              "this device copies memory");
  auto copy = [source = bytes_of(from), target = bytes_of(to), bytes = from.nbytes(),
               source_is_here = !from.is_cpu(), target_is_here = !to.is_cpu()] {
    auto& all = streams::all();
    if ((!source_is_here || all.is_allocated(source))
        && (!target_is_here || all.is_allocated(target)))
      std::memcpy(const_cast<std::byte*>(target), source, bytes);
  };
  streams::all().enqueue(current, copy);
  if (!non_blocking && (from.is_cpu() || to.is_cpu())) // within a GPU, copies never wait
    lazy_device::synchronize();
  return to;
}

at::Tensor copy_from_and_resize(const at::Tensor& from, const at::Tensor& to) {
  return copy_from(from.contiguous(), to, false);
}

/// Enqueues f(x, y) for each value x of a tensor, and y of another one, or a number.
template <class F>
at::Tensor& change_values(at::Tensor& self, const at::Tensor& other, F f) {
  bool is_number = other.is_cpu() && other.numel() == 1;
  TORCH_CHECK(self.scalar_type() == at::kFloat && self.is_contiguous(), "this device adds floats");
  TORCH_CHECK(is_number || (other.device() == self.device() && other.sizes() == self.sizes()),
              "this device adds equal shapes");
  auto number = is_number ? other.item<float>() : 0.0F;
  lazy_device::enqueue(
    [=, x = lazy_device::memory(self), y = is_number ? nullptr : other.data_ptr<float>()] {
      for (std::size_t i = 0; i < x.size(); ++i)
        x[i] = f(x[i], y != nullptr ? y[i] : number);
    });
  return self;
}

at::Tensor& add(at::Tensor& self, const at::Tensor& other, const at::Scalar& times) {
  return change_values(self, other,
                       [n = times.to<float>()](float x, float y) { return x + n * y; });
}

at::Tensor& multiply(at::Tensor& self, const at::Tensor& other) {
  return change_values(self, other, [](float x, float y) { return x * y; });
}

at::Tensor& clear(at::Tensor& self) {
  return change_values(self, self, [](float /*x*/, float /*y*/) { return 0.0F; });
}

void on_cpu(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  at::native::cpu_fallback(op, stack);
}

} // namespace

C10_REGISTER_GUARD_IMPL(PrivateUse1, guard_functions)

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("empty.memory_format", &make);
  m.impl("empty_strided", &make_strided);
  m.impl("_copy_from", &copy_from);
  m.impl("_copy_from_and_resize", &copy_from_and_resize);
  m.impl("view", &at::native::view);
  m.impl("as_strided", &at::native::as_strided_tensorimpl);
  m.impl("add_.Tensor", &add);
  m.impl("mul_.Tensor", &multiply);
  m.impl("zero_", &clear);
}

TORCH_LIBRARY_IMPL(_, PrivateUse1, m) {
  m.fallback(torch::CppFunction::makeFromBoxedFunction<&on_cpu>());
}

torch::Device lazy_device::device() {
  return only_device();
}

torch::Tensor lazy_device::zeros(torch::IntArrayRef sizes, torch::ScalarType type) {
  auto tensor = torch::empty(sizes, torch::TensorOptions{}.dtype(type).device(device()));
  std::memset(tensor.data_ptr(), 0, tensor.nbytes());
  return tensor;
}

std::span<float> lazy_device::memory(const torch::Tensor& tensor) {
  return {static_cast<float*>(tensor.data_ptr()), static_cast<std::size_t>(tensor.numel())};
}

void lazy_device::enqueue(std::function<void()> work) {
  streams::all().enqueue(current, std::move(work));
}

void lazy_device::synchronize() {
  streams::all().advance_to(streams::all().end_of(current));
}

std::size_t lazy_device::copies_in_freed_memory() {
  return streams::all().copies_in_freed_memory();
}

} // namespace waggle::testing
