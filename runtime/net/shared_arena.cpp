#include "runtime/net/shared_arena.hpp"

#include <algorithm>

#include <fcntl.h>
#include <sys/mman.h>

#include "runtime/core/check.hpp"
#include "runtime/core/huge_pages.hpp"

namespace waggle::net {

namespace {

constexpr std::size_t granules_of(std::size_t bytes) {
  return (bytes + shared_arena::granule_bytes - 1) / shared_arena::granule_bytes;
}

} // namespace

std::shared_ptr<shared_arena> shared_arena::make(limits with) {
  auto arena = std::shared_ptr<shared_arena>{new shared_arena{with}};
  // The first segment is created at once, so that peers have mapped it before it is used.
  return arena->grow(granule_bytes) ? arena : nullptr;
}

shared_arena::~shared_arena() {
  for (auto& segment : segments_)
    ::munmap(segment.memory, segment.bytes);
}

bool shared_arena::grow(std::size_t bytes) {
  auto granules = std::max(granules_of(bytes), granules_of(limits_.segment_bytes));
  auto size = granules * granule_bytes;
  if (segments_.size() >= segments_max || size > limits_.bytes_max - mapped_bytes_)
    return false;
  segment_state fresh;
  fresh.file = unique_fd{::memfd_create("waggle", MFD_CLOEXEC | MFD_ALLOW_SEALING)};
  if (!fresh.file || ::ftruncate(fresh.file.get(), static_cast<off_t>(size)) != 0
      || ::fcntl(fresh.file.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0)
    return false;
  auto* memory =
    ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fresh.file.get(), 0);
  if (memory == MAP_FAILED)
    return false;
  prefer_huge_pages(memory, size);
  fresh.memory = static_cast<std::byte*>(memory);
  fresh.bytes = size;
  fresh.taken.resize(granules);
  fresh.touched.resize(granules);
  mapped_bytes_ += size;
  segments_.push_back(std::move(fresh));
  return true;
}

/// First fit: memory that was used before, with its pages, is used again.
std::byte* shared_arena::take_from(segment_state& from, std::size_t granules) {
  std::size_t run = 0;
  for (auto i = from.first_free; i < from.taken.size(); ++i) {
    run = from.taken[i] ? 0 : run + 1;
    if (run < granules)
      continue;
    auto begin = i + 1 - granules;
    for (auto at = begin; at <= i; ++at) {
      from.taken[at] = true;
      if (from.touched[at])
        --idle_granules_;
      from.touched[at] = true;
    }
    if (begin == from.first_free)
      from.first_free = i + 1;
    taken_granules_ += granules;
    return from.memory + begin * granule_bytes;
  }
  return nullptr;
}

std::byte* shared_arena::take_raw(std::size_t bytes) {
  if (bytes == 0 || bytes > limits_.bytes_max)
    return nullptr;
  std::lock_guard guard{mutex_};
  auto granules = granules_of(bytes);
  for (auto& segment : segments_)
    if (auto* block = take_from(segment, granules))
      return block;
  return grow(bytes) ? take_from(segments_.back(), granules) : nullptr;
}

shared_arena::segment_state* shared_arena::segment_of(const void* at, std::size_t bytes) {
  auto address = reinterpret_cast<std::uintptr_t>(at);
  for (auto& segment : segments_) {
    auto begin = reinterpret_cast<std::uintptr_t>(segment.memory);
    if (address >= begin && address - begin < segment.bytes
        && bytes <= segment.bytes - (address - begin))
      return &segment;
  }
  return nullptr;
}

void shared_arena::give(std::byte* block, std::size_t bytes) {
  std::lock_guard guard{mutex_};
  auto* segment = segment_of(block, bytes);
  WAGGLE_CHECK(segment != nullptr, "a block that is not of this arena");
  auto granules = granules_of(bytes);
  auto begin = static_cast<std::size_t>(block - segment->memory) / granule_bytes;
  for (auto at = begin; at < begin + granules; ++at) {
    WAGGLE_CHECK(segment->taken[at], "a block that was given back before");
    segment->taken[at] = false;
  }
  taken_granules_ -= granules;
  idle_granules_ += granules;
  segment->first_free = std::min(segment->first_free, begin);
  if (idle_granules_ * granule_bytes <= limits_.idle_bytes_max)
    return;
  // Peers that still read there see zeros: they hold no reference, or were given up.
  if (::fallocate(segment->file.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                  static_cast<off_t>(begin * granule_bytes),
                  static_cast<off_t>(granules * granule_bytes))
      != 0)
    return;
  idle_granules_ -= granules;
  for (auto at = begin; at < begin + granules; ++at)
    segment->touched[at] = false;
}

std::shared_ptr<std::byte> shared_arena::take(std::size_t bytes) {
  auto* block = take_raw(bytes);
  if (block == nullptr)
    return nullptr;
  return {block, [home = shared_from_this(), bytes](std::byte* b) { home->give(b, bytes); }};
}

std::optional<shared_arena::place> shared_arena::locate(const void* at, std::size_t bytes) const {
  std::lock_guard guard{mutex_};
  auto* found = const_cast<shared_arena*>(this)->segment_of(at, bytes);
  if (found == nullptr)
    return std::nullopt;
  return place{static_cast<std::uint32_t>(found - segments_.data()),
               static_cast<std::uint64_t>(static_cast<const std::byte*>(at) - found->memory)};
}

std::size_t shared_arena::segment_count() const {
  std::lock_guard guard{mutex_};
  return segments_.size();
}

shared_arena::segment_view shared_arena::segment(std::size_t index) const {
  std::lock_guard guard{mutex_};
  return {segments_.at(index).file.get(), segments_.at(index).bytes};
}

shared_arena::use shared_arena::in_use() const {
  std::lock_guard guard{mutex_};
  return {taken_granules_ * granule_bytes, idle_granules_ * granule_bytes};
}

void* arena_resource::do_allocate(std::size_t bytes, std::size_t alignment) {
  if (bytes >= shared_arena::granule_bytes && alignment <= shared_arena::block_alignment)
    if (auto* block = arena_->take_raw(bytes))
      return block;
  return std::pmr::new_delete_resource()->allocate(bytes, alignment);
}

void arena_resource::do_deallocate(void* block, std::size_t bytes, std::size_t alignment) {
  if (arena_->locate(block, bytes))
    return arena_->give(static_cast<std::byte*>(block), bytes);
  std::pmr::new_delete_resource()->deallocate(block, bytes, alignment);
}

} // namespace waggle::net
