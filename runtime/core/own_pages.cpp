#include "runtime/core/own_pages.hpp"

#include <new>

#include <sys/mman.h>

namespace waggle {

std::shared_ptr<std::byte> own_pages(std::size_t bytes) {
  auto* pages = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (pages == MAP_FAILED)
    throw std::bad_alloc{};
  (void)::madvise(pages, bytes, MADV_NOHUGEPAGE); // fails where the kernel has no huge pages
  return {static_cast<std::byte*>(pages), [bytes](std::byte* block) { ::munmap(block, bytes); }};
}

} // namespace waggle
