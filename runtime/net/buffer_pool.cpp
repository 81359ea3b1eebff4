#include "runtime/net/buffer_pool.hpp"

#include "runtime/core/bytes.hpp"

namespace waggle::net {

std::shared_ptr<buffer_pool> buffer_pool::make(std::size_t bytes_max) {
  return std::shared_ptr<buffer_pool>{new buffer_pool{bytes_max}};
}

std::shared_ptr<std::byte> buffer_pool::take(std::size_t size) {
  // Small ones come from malloc's own caches at the same price.
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
    found = {std::unique_ptr<std::byte[]>{new std::byte[size]}, size};
  auto* raw = found.bytes.get();
  return {raw,
          [pool = weak_from_this(), held = std::make_shared<block>(std::move(found))](std::byte*) {
            if (auto home = pool.lock())
              home->give_back(std::move(*held));
          }};
}

void buffer_pool::give_back(block unused) {
  std::lock_guard lock{mutex_};
  if (unused_bytes_ + unused.capacity > bytes_max_)
    return;
  unused_bytes_ += unused.capacity;
  unused_.push_back(std::move(unused));
}

} // namespace waggle::net
