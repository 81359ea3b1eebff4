#include "runtime/net/port_mapping.hpp"

namespace waggle::net {

port_mapping::port_mapping(std::shared_ptr<port_router> router, options opts)
  : router_(std::move(router)), options_(opts),
    thread_([this](const std::stop_token& stop) { run(stop); }) {}

void port_mapping::want(std::uint16_t port, on_mapped told) {
  std::lock_guard guard{mutex_};
  if (wanted_)
    return;
  wanted_ = port;
  told_ = std::move(told);
  changed_.notify_all();
}

void port_mapping::run(const std::stop_token& stop) {
  std::unique_lock lock{mutex_};
  if (!changed_.wait(lock, stop, [this] { return wanted_.has_value(); }))
    return;
  auto port = *wanted_;
  std::optional<result<endpoint>> before;
  while (!stop.stop_requested()) {
    lock.unlock();
    auto now = router_->map(port, options_.lease);
    bool same = before && before->ok() == now.ok() && (!now.ok() || **before == *now);
    if (!same)
      told_(now);
    before = now;
    lock.lock();
    changed_.wait_for(lock, stop, now.ok() ? options_.renewed_every : options_.tried_every,
                      [] { return false; });
  }
  lock.unlock();
  if (before && before->ok())
    router_->unmap(port);
}

} // namespace waggle::net
