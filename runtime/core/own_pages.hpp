#pragma once

#include <cstddef>
#include <memory>
#include <new>

#include <sys/mman.h>

namespace waggle {

/// `bytes` bytes, all zero, in pages of their own, which return to the system when the last owner
/// releases them, and which do not exist before they are written. malloc gives neither: what was
/// freed in an arena stays resident below whatever was allocated after it, and is handed out again.
/// Costs a page fault every 4 KiB, so this is for memory that is needed rarely or must be bounded.
/// Never huge pages: one written byte would make 2 MiB resident. Throws std::bad_alloc.
inline std::shared_ptr<std::byte> own_pages(std::size_t bytes) {
  auto* pages = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (pages == MAP_FAILED)
    throw std::bad_alloc{};
  (void)::madvise(pages, bytes, MADV_NOHUGEPAGE); // fails where the kernel has no huge pages
  return {static_cast<std::byte*>(pages), [bytes](std::byte* block) { ::munmap(block, bytes); }};
}

} // namespace waggle
