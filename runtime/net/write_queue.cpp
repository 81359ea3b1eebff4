#include "runtime/net/write_queue.hpp"

#include <algorithm>

namespace waggle::net {

namespace {

// Frames written by one system call; Asio passes at most 64 buffers, three per frame.
constexpr std::size_t frames_per_write = 20;
constexpr std::size_t bulk_frames_per_write = 4;

// How long one slice may take: a control frame waits that long; shorter costs more system calls.
constexpr auto slice_time_min = std::chrono::milliseconds{2};
constexpr auto slice_time_max = std::chrono::milliseconds{8};

std::size_t control_size(const outgoing& out) {
  return frame_prefix::size + out.content.header.size();
}

} // namespace

write_queue::admission write_queue::offer(frame f) {
  if (f.body.empty()) {
    auto bytes = f.header.size() + frame_prefix::size;
    if (control_bytes_.fetch_add(bytes) + bytes > how_.control_bytes_max) {
      control_bytes_ -= bytes;
      return admission::refused;
    }
    ++control_frames_;
  } else if (bulk_frames_.fetch_add(1) + 1 > how_.bulk_frames_max) {
    --bulk_frames_;
    return admission::refused;
  } else if (f.background) {
    background_bytes_ += f.body.size;
  }
  std::lock_guard lock{offered_mutex_};
  offered_.push_back(std::move(f));
  return std::exchange(announced_, true) ? admission::admitted : admission::first;
}

void write_queue::take_offered() {
  std::vector<frame> frames;
  {
    std::lock_guard lock{offered_mutex_};
    frames.swap(offered_);
    announced_ = false;
  }
  // Before more is added: rounds that fail faster than a peer takes their parts must not fill
  // memory.
  bulk_frames_ -= std::erase_if(bulk_, [](const outgoing& out) {
    return out.content.obsolete && out.content.obsolete->load();
  });
  for (auto& f : frames) {
    frame_prefix prefix{frame_kind::message, static_cast<std::uint32_t>(f.header.size()),
                        static_cast<std::uint32_t>(f.body.size)};
    bool bulk = !f.body.empty();
    auto& lane = !bulk ? control_ : f.background ? background_ : bulk_;
    lane.push_back({write_prefix(prefix), std::move(f), 0, bulk, true});
  }
}

void write_queue::add(frame_kind kind, std::string header) {
  control_bytes_ += header.size() + frame_prefix::size;
  ++control_frames_;
  frame_prefix prefix{kind, static_cast<std::uint32_t>(header.size()), 0};
  control_.push_back({write_prefix(prefix), {std::move(header), {}}, 0, false, true});
}

bool write_queue::open_window(std::size_t bytes) {
  if (bytes > how_.window_bytes || window_ + bytes > how_.window_bytes)
    return false;
  window_ += bytes;
  return true;
}

/// The lane whose first body is sent next; null: none waits.
std::deque<outgoing>* write_queue::next_lane() {
  if (bulk_.empty() || background_.empty())
    return !bulk_.empty() ? &bulk_ : !background_.empty() ? &background_ : nullptr;
  return lead_ >= background_.front().content.body.size ? &background_ : &bulk_;
}

outgoing write_queue::take_from(std::deque<outgoing>& lane) {
  bool both = !bulk_.empty() && !background_.empty();
  auto out = std::move(lane.front());
  lane.pop_front();
  if (&lane == &background_)
    background_bytes_ -= out.content.body.size;
  if (!both)
    lead_ = 0;
  else if (&lane == &bulk_)
    lead_ += out.content.body.size;
  else
    lead_ -= out.content.body.size;
  return out;
}

void write_queue::next(std::vector<outgoing>& batch, bool bulk_too,
                       const std::function<void(outgoing&)>& refer) {
  while (!control_.empty() && batch.size() < frames_per_write) {
    batch.push_back(std::move(control_.front()));
    control_.pop_front();
  }
  if (!bulk_too)
    return;
  auto room = slice_bytes_; // for slices in this write
  for (std::size_t n = 0; n < bulk_frames_per_write && room > 0; ++n) {
    if (!unsent_.empty()) {
      auto size = std::min(room, unsent_.size);
      room -= size;
      frame_prefix prefix{frame_kind::slice, 0, static_cast<std::uint32_t>(size)};
      bool last = size == unsent_.size;
      batch.push_back({write_prefix(prefix), {{}, slice(unsent_, 0, size)}, 0, true, last});
      unsent_ = last ? payload{} : slice(unsent_, size, unsent_.size - size);
      continue;
    }
    auto* lane = next_lane();
    if (lane == nullptr || lane->front().content.body.size > window_)
      break;
    auto out = take_from(*lane);
    auto size = out.content.body.size;
    window_ -= size;
    refer(out);
    if (how_.slices && out.content.body.size > room) {
      // The opening announces the whole size; the slices follow, the first in this write.
      unsent_ = std::exchange(out.content.body, {});
      out.prefix =
        write_prefix({frame_kind::opening, static_cast<std::uint32_t>(out.content.header.size()),
                      static_cast<std::uint32_t>(size)});
      out.completes = false;
    } else if (how_.slices) {
      room -= out.content.body.size;
    }
    batch.push_back(std::move(out));
  }
}

void write_queue::written(const std::vector<outgoing>& batch, steady_time::duration took) {
  std::size_t bytes = 0;
  for (const auto& out : batch) {
    if (!out.bulk) {
      control_bytes_ -= control_size(out);
      --control_frames_;
    } else if (out.completes) {
      --bulk_frames_;
    }
    bytes += out.content.body.size;
  }
  body_bytes_written_ += bytes;
  // Only full slices show how fast the link is.
  if (!how_.slices || bytes < slice_bytes_)
    return;
  if (took < slice_time_min)
    slice_bytes_ = std::min(2 * slice_bytes_, slice_bytes_max);
  else if (took > slice_time_max)
    slice_bytes_ = std::max(slice_bytes_ / 2, slice_bytes_min);
}

void write_queue::drop_bulk() {
  bulk_.clear();
  for (const auto& out : background_)
    background_bytes_ -= out.content.body.size;
  background_.clear();
  unsent_ = {};
}

void write_queue::clear() {
  control_.clear();
  drop_bulk();
}

} // namespace waggle::net
