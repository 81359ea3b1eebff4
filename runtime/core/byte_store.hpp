#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <span>

#include "runtime/core/bytes.hpp"
#include "runtime/core/result.hpp"

namespace waggle {

class buffer_pool;

/// Bytes that are read in ranges, so that they need not be in memory: a state may be as large as
/// the model itself. They do not change while they are shared as const. Thread-safe.
class byte_source {
public:
  virtual ~byte_source() = default;

  [[nodiscard]] virtual std::uint64_t size() const = 0;
  /// Copies the bytes [at, at + out.size()). Fails with ec::io_error. REQUIRES: they lie within.
  virtual status read(std::uint64_t at, std::span<std::byte> out) const = 0;
  /// The same bytes for sending: in a buffer of `buffers`, or without a copy if they are in memory.
  virtual result<payload> piece(std::uint64_t at, std::size_t bytes, buffer_pool& buffers) const;
};

/// Bytes that are written in any order and are local to this process: the copy of a state, a
/// download. Thread-safe.
class byte_store : public byte_source {
public:
  /// Grows to the end of the last write; bytes that were never written are zero. Fails with
  /// ec::io_error.
  virtual status write(std::uint64_t at, byte_span bytes) = 0;
  /// The bytes that are free where it lies; the largest number if that is not known.
  [[nodiscard]] virtual std::uint64_t room() const {
    return std::numeric_limits<std::uint64_t>::max();
  }
};

using byte_store_factory = std::function<result<std::shared_ptr<byte_store>>()>;

/// On the heap: for simulations and tests, and where there is no folder.
std::shared_ptr<byte_store> make_memory_store();
/// Shares the bytes.
std::shared_ptr<const byte_source> source_of(payload bytes);

/// Bytes that it does not own; they must outlive it.
class borrowed_bytes final : public byte_source {
public:
  explicit borrowed_bytes(byte_span bytes) : bytes_(bytes) {}
  [[nodiscard]] std::uint64_t size() const override { return bytes_.size(); }
  status read(std::uint64_t at, std::span<std::byte> out) const override;

private:
  byte_span bytes_;
};

/// Calls `take` with the bytes [at, at + bytes) in order, in pieces of at most this many. Fails
/// with the first failure of either.
constexpr std::size_t byte_source_piece = 1_MiB;
status for_each_piece(const byte_source& from, std::uint64_t at, std::uint64_t bytes,
                      const std::function<status(byte_span)>& take);
/// Reads everything into memory.
result<payload> read_all(const byte_source& from);

} // namespace waggle
