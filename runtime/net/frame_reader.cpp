#include "runtime/net/frame_reader.hpp"

#include <algorithm>
#include <cstring>

#include "runtime/core/check.hpp"
#include "runtime/core/own_pages.hpp"
#include "runtime/net/handshake.hpp"

namespace waggle::net {

namespace {

// Small frames share a read. At most this much of a large body is copied one extra time.
constexpr std::size_t read_buffer_bytes = 20_KiB;

std::shared_ptr<std::byte> heap_buffer(std::size_t bytes) {
  return {new std::byte[bytes], std::default_delete<std::byte[]>{}};
}

} // namespace

frame_reader::frame_reader(std::string_view early, std::size_t window_bytes, memory_source memory)
  : memory_(std::move(memory)), window_(window_bytes), handshake_max_(handshake_bytes_max),
    capacity_(std::max(read_buffer_bytes, early.size())), buffer_(heap_buffer(capacity_)),
    end_(early.size()) {
  std::copy_n(reinterpret_cast<const std::byte*>(early.data()), early.size(), buffer_.get());
}

void frame_reader::abandon_body() {
  body_.reset();
  buffer_.reset();
  begin_ = end_ = 0;
}

std::span<std::byte> frame_reader::room() {
  if (due_ > 0)
    return {body_->memory.get() + body_->here, due_};
  if (begin_ == end_) {
    begin_ = end_ = 0;
    if (capacity_ > read_buffer_bytes) // a long header was here
      move_to(heap_buffer(read_buffer_bytes), read_buffer_bytes);
  }
  if (end_ == capacity_) {
    auto needed = frame_prefix::size + long_header(); // at most frame_header_bytes_max of it
    if (needed > capacity_)
      move_to(own_pages(needed), needed);
    else
      move_to(buffer_, capacity_);
  }
  return {buffer_.get() + end_, capacity_ - end_};
}

/// What was read and not parsed moves to the beginning of `buffer`, which may be the same one.
void frame_reader::move_to(std::shared_ptr<std::byte> buffer, std::size_t capacity) {
  std::memmove(buffer.get(), buffer_.get() + begin_, end_ - begin_);
  buffer_ = std::move(buffer);
  capacity_ = capacity;
  end_ -= begin_;
  begin_ = 0;
}

std::size_t frame_reader::long_header() const {
  if (wire_bytes_ != 0 || end_ - begin_ < frame_prefix::size)
    return 0;
  auto prefix = read_prefix({buffer_.get() + begin_, frame_prefix::size});
  bool is_long = prefix.ok() && frame_prefix::size + prefix->header_bytes > read_buffer_bytes;
  return is_long ? prefix->header_bytes : 0;
}

void frame_reader::filled(std::size_t bytes) {
  if (due_ > 0) {
    WAGGLE_CHECK(bytes <= due_, "more bytes than there was room for");
    body_->here += bytes;
    due_ -= bytes;
  } else {
    WAGGLE_CHECK(bytes <= capacity_ - end_, "more bytes than there was room for");
    end_ += bytes;
  }
}

result<std::optional<arrival>> frame_reader::next() {
  if (wire_bytes_ == 0) {
    auto begun = begin_frame();
    if (!begun.ok() || *begun || wire_bytes_ == 0)
      return begun;
  }
  if (auto have = std::min(end_ - begin_, due_); have > 0) {
    std::memcpy(body_->memory.get() + body_->here, buffer_.get() + begin_, have);
    begin_ += have;
    body_->here += have;
    due_ -= have;
  }
  if (due_ > 0)
    return std::optional<arrival>{};
  return std::optional{end_piece()};
}

const char* frame_reader::misplaced(const frame_prefix& prefix) const {
  bool shakes_hands = prefix.kind == frame_kind::handshake;
  if (open_ && shakes_hands)
    return "a second handshake";
  if (!open_ && (!shakes_hands || prefix.header_bytes > handshake_max_))
    return "a frame before the handshake";
  if (prefix.kind == frame_kind::slice) {
    if (!body_ || prefix.body_bytes > body_->size - body_->here)
      return "a slice without an open body";
  } else if (body_ && (prefix.body_bytes > 0 || prefix.kind == frame_kind::reference)) {
    return "a body within a body";
  }
  return nullptr;
}

/// A frame without a body, or an opening; nothing: it has not arrived, or its body follows.
result<std::optional<arrival>> frame_reader::begin_frame() {
  auto available = end_ - begin_;
  if (available < frame_prefix::size)
    return std::optional<arrival>{};
  auto prefix = read_prefix({buffer_.get() + begin_, frame_prefix::size});
  if (!prefix.ok())
    return prefix.error();
  if (const auto* why = misplaced(*prefix))
    return failure{ec::protocol_violation, why};
  auto bytes = frame_prefix::size + prefix->header_bytes;
  if (available < bytes)
    return std::optional<arrival>{};
  std::string header(as_string_view(
    {buffer_.get() + begin_ + frame_prefix::size, static_cast<std::size_t>(prefix->header_bytes)}));
  begin_ += bytes;
  if (begin_ == end_ && capacity_ > read_buffer_bytes) { // a long header: the link may be held now
    begin_ = end_ = 0;
    move_to(heap_buffer(read_buffer_bytes), read_buffer_bytes);
  }
  std::size_t body_bytes = prefix->body_bytes;
  if (body_bytes == 0)
    return std::optional{arrival{prefix->kind, {std::move(header), {}}, bytes, false}};
  if (prefix->kind != frame_kind::slice) {
    // Checked before memory is allocated: the peer may not have more than the window in flight.
    if (!window_.take(body_bytes))
      return failure{ec::protocol_violation, "the peer overran its window"};
    auto memory = memory_(header, body_bytes);
    body_.emplace(partial_body{std::move(header), std::move(memory), body_bytes, 0});
  }
  if (prefix->kind == frame_kind::opening)
    return std::optional{arrival{frame_kind::opening, {}, bytes, false}};
  wire_bytes_ = bytes + body_bytes;
  due_ = body_bytes;
  return std::optional<arrival>{};
}

arrival frame_reader::end_piece() {
  arrival seen{frame_kind::slice, {}, std::exchange(wire_bytes_, 0), true};
  if (body_->here == body_->size) {
    seen.kind = frame_kind::message;
    seen.content = {std::move(body_->header), {std::move(body_->memory), body_->size}};
    body_.reset();
  }
  return seen;
}

} // namespace waggle::net
