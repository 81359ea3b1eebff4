#pragma once

#include <cstddef>
#include <memory_resource>

namespace waggle {

/// Asks the kernel to back the whole huge pages in [at, at + bytes) with huge pages, where it can:
/// large copies of small pages spend a tenth of their time on page-table lookups.
void prefer_huge_pages(void* at, std::size_t bytes);

constexpr std::size_t huge_page_bytes = std::size_t{2} << 20U;

/// Heap memory, in huge pages where a block is large enough. Thread-safe.
class huge_page_resource final : public std::pmr::memory_resource {
  void* do_allocate(std::size_t bytes, std::size_t alignment) override;
  void do_deallocate(void* block, std::size_t bytes, std::size_t alignment) override;
  [[nodiscard]] bool do_is_equal(const std::pmr::memory_resource& other) const noexcept override {
    return dynamic_cast<const huge_page_resource*>(&other) != nullptr;
  }
};

} // namespace waggle
