#pragma once

#include <functional>
#include <memory>
#include <string>

#include "runtime/net/transport.hpp"

namespace waggle::net {

/// A listener made of functions; each may be empty.
struct link_events final : link_listener {
  std::function<void(frame)> frame_arrived;
  std::function<void(failure)> closed;
  std::function<std::shared_ptr<std::byte>(const std::string& header, std::size_t)> place;
  std::function<bool(const std::string& header, std::size_t)> shares;
  std::function<void(std::size_t frames, std::size_t header_bytes)> overhead;

  std::shared_ptr<std::byte> body_memory(const std::string& header, std::size_t bytes) override {
    return place ? place(header, bytes) : nullptr;
  }
  void on_frame(frame f) override {
    if (frame_arrived)
      frame_arrived(std::move(f));
  }
  void on_close(failure why) override {
    if (closed)
      closed(std::move(why));
  }
  bool zero_copy_ok(const std::string& header, std::size_t bytes) override {
    return shares && shares(header, bytes);
  }
  void on_overhead(std::size_t frames, std::size_t header_bytes) override {
    if (overhead)
      overhead(frames, header_bytes);
  }
};

} // namespace waggle::net
