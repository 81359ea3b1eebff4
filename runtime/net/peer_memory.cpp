#include "runtime/net/peer_memory.hpp"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/vfs.h>

namespace waggle::net {

peer_memory::peer_memory(unique_fd socket, std::function<void()> returned)
  : socket_(std::move(socket)), returned_(std::move(returned)) {}

peer_memory::~peer_memory() {
  for (const auto& segment : segments_)
    ::munmap(const_cast<std::byte*>(segment.memory), segment.bytes);
  ::shutdown(socket_.get(), SHUT_WR);
}

status peer_memory::add(unique_fd file, std::uint64_t bytes) {
  auto refused = [](const char* why) { return failure{ec::protocol_violation, why}; };
  std::lock_guard guard{mutex_};
  if (segments_.size() >= segments_max || bytes == 0 || bytes > segment_bytes_max)
    return refused("a shared segment out of bounds");
  constexpr int needed = F_SEAL_SHRINK | F_SEAL_GROW;
  auto seals = ::fcntl(file.get(), F_GET_SEALS);
  if (seals < 0 || (seals & needed) != needed)
    return refused("a shared segment whose size may change");
  struct stat what {};
  struct statfs where {};
  // No huge pages: touching them fails when the system runs out of them.
  if (::fstat(file.get(), &what) != 0 || ::fstatfs(file.get(), &where) != 0
      || where.f_type != TMPFS_MAGIC || static_cast<std::uint64_t>(what.st_size) != bytes)
    return refused("a shared segment that is not a memory file of the announced size");
  auto* memory = ::mmap(nullptr, bytes, PROT_READ, MAP_SHARED | MAP_NORESERVE, file.get(), 0);
  if (memory == MAP_FAILED)
    return failure{ec::overloaded, "no address space for a shared segment"};
  segments_.push_back({static_cast<const std::byte*>(memory), bytes});
  return done{};
}

std::size_t peer_memory::segment_count() const {
  std::lock_guard guard{mutex_};
  return segments_.size();
}

result<payload> peer_memory::borrow(const memory_reference& reference) {
  const std::byte* begin = nullptr;
  {
    std::lock_guard guard{mutex_};
    if (reference.segment >= segments_.size())
      return failure{ec::protocol_violation, "a reference to an unknown segment"};
    const auto& segment = segments_[reference.segment];
    if (reference.bytes == 0 || reference.offset > segment.bytes
        || reference.bytes > segment.bytes - reference.offset)
      return failure{ec::protocol_violation, "a reference outside its segment"};
    begin = segment.memory + reference.offset;
  }
  return payload{
    {begin, [me = shared_from_this(), id = reference.id](const std::byte*) { me->give_back(id); }},
    reference.bytes,
    true};
}

void peer_memory::give_back(std::uint64_t id) {
  bool first = false;
  {
    std::lock_guard guard{mutex_};
    first = unused_.empty();
    unused_.push_back(id);
  }
  if (first)
    returned_();
}

std::vector<std::uint64_t> peer_memory::take_returned() {
  std::lock_guard guard{mutex_};
  if (unused_.size() <= releases_max)
    return std::exchange(unused_, {});
  std::vector<std::uint64_t> some{unused_.end() - releases_max, unused_.end()};
  unused_.resize(unused_.size() - releases_max);
  return some;
}

} // namespace waggle::net
