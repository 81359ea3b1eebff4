#include "runtime/core/byte_store.hpp"

#include <algorithm>
#include <cstring>
#include <mutex>
#include <string>
#include <vector>

#include "runtime/core/buffer_pool.hpp"
#include "runtime/core/check.hpp"
#include "runtime/core/try.hpp"

namespace waggle {

namespace {

void copy_range(byte_span from, std::uint64_t at, std::span<std::byte> out) {
  WAGGLE_CHECK(at <= from.size() && out.size() <= from.size() - at,
               std::to_string(at) + " + " + std::to_string(out.size()) + " of "
                 + std::to_string(from.size()));
  if (!out.empty())
    std::memcpy(out.data(), from.data() + at, out.size());
}

class memory_store final : public byte_store {
public:
  [[nodiscard]] std::uint64_t size() const override {
    std::lock_guard guard{mutex_};
    return bytes_.size();
  }
  status read(std::uint64_t at, std::span<std::byte> out) const override {
    std::lock_guard guard{mutex_};
    copy_range(bytes_, at, out);
    return done{};
  }
  status write(std::uint64_t at, byte_span bytes) override {
    std::lock_guard guard{mutex_};
    if (bytes_.size() < at + bytes.size())
      bytes_.resize(at + bytes.size());
    std::copy(bytes.begin(), bytes.end(), bytes_.begin() + static_cast<std::ptrdiff_t>(at));
    return done{};
  }

private:
  mutable std::mutex mutex_;
  std::vector<std::byte> bytes_;
};

class payload_source final : public byte_source {
public:
  explicit payload_source(payload bytes) : bytes_(std::move(bytes)) {}
  [[nodiscard]] std::uint64_t size() const override { return bytes_.size; }
  status read(std::uint64_t at, std::span<std::byte> out) const override {
    copy_range(bytes_.view(), at, out);
    return done{};
  }
  result<payload> piece(std::uint64_t at, std::size_t bytes, buffer_pool&) const override {
    return slice(bytes_, at, bytes);
  }

private:
  payload bytes_;
};

} // namespace

result<payload> byte_source::piece(std::uint64_t at, std::size_t bytes,
                                   buffer_pool& buffers) const {
  auto buffer = buffers.take(bytes);
  WAGGLE_TRY(good, read(at, {buffer.get(), bytes}));
  return payload{std::move(buffer), bytes};
}

std::shared_ptr<byte_store> make_memory_store() {
  return std::make_shared<memory_store>();
}

std::shared_ptr<const byte_source> source_of(payload bytes) {
  return std::make_shared<payload_source>(std::move(bytes));
}

status borrowed_bytes::read(std::uint64_t at, std::span<std::byte> out) const {
  copy_range(bytes_, at, out);
  return done{};
}

status for_each_piece(const byte_source& from, std::uint64_t at, std::uint64_t bytes,
                      const std::function<status(byte_span)>& take) {
  std::vector<std::byte> piece(
    static_cast<std::size_t>(std::min<std::uint64_t>(bytes, byte_source_piece)));
  for (std::uint64_t done_bytes = 0; done_bytes < bytes; done_bytes += piece.size()) {
    auto left = bytes - done_bytes;
    if (left < piece.size())
      piece.resize(static_cast<std::size_t>(left));
    WAGGLE_TRY(got, from.read(at + done_bytes, piece));
    WAGGLE_TRY(taken, take(piece));
  }
  return done{};
}

result<payload> read_all(const byte_source& from) {
  auto bytes = std::make_shared<std::vector<std::byte>>(static_cast<std::size_t>(from.size()));
  WAGGLE_TRY(good, from.read(0, *bytes));
  return payload_of(std::shared_ptr<const std::vector<std::byte>>{bytes});
}

} // namespace waggle
