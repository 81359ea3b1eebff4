#include "runtime/core/huge_pages.hpp"

#include <algorithm>
#include <cstdint>

#include <sys/mman.h>

namespace waggle {

namespace {

std::size_t alignment_of(std::size_t bytes, std::size_t wanted) {
  return bytes >= huge_page_bytes ? std::max(wanted, huge_page_bytes) : wanted;
}

} // namespace

void prefer_huge_pages(void* at, std::size_t bytes) {
  auto address = reinterpret_cast<std::uintptr_t>(at);
  auto skip = (huge_page_bytes - address % huge_page_bytes) % huge_page_bytes;
  if (bytes < skip + huge_page_bytes)
    return;
  // Only a hint: failure is harmless.
  (void)::madvise(static_cast<char*>(at) + skip, (bytes - skip) / huge_page_bytes * huge_page_bytes,
                  MADV_HUGEPAGE);
}

void* huge_page_resource::do_allocate(std::size_t bytes, std::size_t alignment) {
  auto* block = std::pmr::new_delete_resource()->allocate(bytes, alignment_of(bytes, alignment));
  prefer_huge_pages(block, bytes);
  return block;
}

void huge_page_resource::do_deallocate(void* block, std::size_t bytes, std::size_t alignment) {
  std::pmr::new_delete_resource()->deallocate(block, bytes, alignment_of(bytes, alignment));
}

} // namespace waggle
