#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "runtime/core/bytes.hpp"
#include "runtime/core/result.hpp"
#include "runtime/core/unique_fd.hpp"
#include "runtime/net/framing.hpp"

namespace waggle::net {

/// The segments of a peer's arena, mapped read-only. Payloads from `borrow` keep this object alive
/// and the segments mapped. When the last owner of a payload releases it, `returned` is called.
///
/// The destructor shuts `socket` down for writing. That is how a peer whose link has ended learns
/// that its memory is no longer read. Thread-safe.
class peer_memory : public std::enable_shared_from_this<peer_memory> {
public:
  static constexpr std::size_t segments_max = 64;
  static constexpr std::uint64_t segment_bytes_max = std::uint64_t{1} << 40U; // address space

  /// `returned` is called when `take_returned` has ids, on the thread that released the payload.
  /// Must not block.
  peer_memory(unique_fd socket, std::function<void()> returned);
  ~peer_memory();
  peer_memory(const peer_memory&) = delete;
  peer_memory& operator=(const peer_memory&) = delete;

  /// Maps a segment; segments are numbered in the order of these calls. Fails if `file` is not what
  /// shared_arena makes: a memory file of `bytes` bytes whose size cannot change, so that reading
  /// it never faults.
  status add(unique_fd file, std::uint64_t bytes);
  [[nodiscard]] std::size_t segment_count() const;

  /// The peer may change the payload's bytes. Fails with ec::protocol_violation if the reference is
  /// outside the mapped segments.
  result<payload> borrow(const memory_reference& reference);
  /// Ids of references that are no longer used, each once, at most releases_max.
  std::vector<std::uint64_t> take_returned();

private:
  struct mapping {
    const std::byte* memory = nullptr;
    std::uint64_t bytes = 0;
  };

  void give_back(std::uint64_t id);

  const unique_fd socket_;
  const std::function<void()> returned_;
  mutable std::mutex mutex_; // guards everything below
  std::vector<mapping> segments_;
  std::vector<std::uint64_t> unused_;
};

} // namespace waggle::net
