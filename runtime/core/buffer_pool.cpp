#include "runtime/core/buffer_pool.hpp"

#include "runtime/core/bytes.hpp"
#include "runtime/core/huge_pages.hpp"

namespace waggle {

std::shared_ptr<buffer_pool> buffer_pool::make(std::size_t bytes_max,
                                               std::shared_ptr<std::pmr::memory_resource> memory) {
  if (!memory)
    memory = std::make_shared<huge_page_resource>();
  return std::shared_ptr<buffer_pool>{new buffer_pool{bytes_max, std::move(memory)}};
}

std::shared_ptr<std::byte> buffer_pool::take(std::size_t size) {
  // For small buffers malloc's own caches are as fast.
  if (size < 64_KiB)
    return {new std::byte[size], std::default_delete<std::byte[]>{}};
  block found;
  {
    std::lock_guard lock{mutex_};
    for (auto i = unused_.size(); i-- > 0;)
      if (unused_[i].capacity >= size && unused_[i].capacity <= 2 * size) {
        found = std::move(unused_[i]);
        unused_.erase(unused_.begin() + static_cast<std::ptrdiff_t>(i));
        unused_bytes_ -= found.capacity;
        break;
      }
  }
  if (!found.bytes)
    found = make_block(size);
  auto* raw = found.bytes.get();
  return {raw,
          [pool = weak_from_this(), held = std::make_shared<block>(std::move(found))](std::byte*) {
            if (auto owner = pool.lock())
              owner->give_back(std::move(*held));
          }};
}

/// A piece of a new slab, whose other pieces go to the pool at once, or an allocation of its own.
buffer_pool::block buffer_pool::make_block(std::size_t size) {
  auto take = [this](std::size_t bytes) {
    return std::shared_ptr<std::byte>{
      static_cast<std::byte*>(memory_->allocate(bytes)),
      [keep = memory_, bytes](std::byte* block) { keep->deallocate(block, bytes); }};
  };
  auto piece = (size + 64_KiB - 1) / 64_KiB * 64_KiB;
  auto pieces = huge_page_bytes / piece;
  if (pieces < 2)
    return {take(size), size};
  auto slab = take(huge_page_bytes);
  for (std::size_t i = 1; i < pieces; ++i)
    give_back({{slab, slab.get() + i * piece}, piece});
  return {slab, piece};
}

void buffer_pool::give_back(block unused) {
  std::lock_guard lock{mutex_};
  if (unused_bytes_ + unused.capacity > bytes_max_)
    return;
  unused_bytes_ += unused.capacity;
  unused_.push_back(std::move(unused));
}

} // namespace waggle
