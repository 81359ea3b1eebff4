#include "runtime/net/port_mapping.hpp"

#include <condition_variable>
#include <mutex>
#include <optional>

namespace waggle::net {

struct port_mapping::shared {
  shared(std::shared_ptr<port_router> of, options how) : router(std::move(of)), given(how) {}

  void run();

  const std::shared_ptr<port_router> router;
  const options given;
  std::mutex mutex; // guards everything below
  std::condition_variable changed;
  std::optional<std::uint16_t> wanted;
  on_mapped told; // called under the mutex, so never after the end
  bool stops = false;
  bool ended = false;
};

port_mapping::port_mapping(std::shared_ptr<port_router> router, options opts)
  : shared_(std::make_shared<shared>(std::move(router), opts)),
    thread_([with = shared_] { with->run(); }) {}

port_mapping::~port_mapping() {
  std::unique_lock lock{shared_->mutex};
  shared_->stops = true;
  shared_->changed.notify_all();
  bool ended =
    shared_->changed.wait_for(lock, shared_->given.patience, [this] { return shared_->ended; });
  shared_->told = nullptr;
  lock.unlock();
  ended ? thread_.join() : thread_.detach();
}

void port_mapping::want(std::uint16_t port, on_mapped told) {
  std::lock_guard guard{shared_->mutex};
  if (shared_->wanted)
    return;
  shared_->wanted = port;
  shared_->told = std::move(told);
  shared_->changed.notify_all();
}

void port_mapping::shared::run() {
  std::unique_lock lock{mutex};
  changed.wait(lock, [this] { return stops || wanted; });
  auto port = wanted.value_or(0);
  std::optional<result<endpoint>> before;
  while (!stops) {
    lock.unlock();
    auto now = router->map(port, given.lease);
    lock.lock();
    bool same = before && before->ok() == now.ok() && (!now.ok() || **before == *now);
    if (!same && !stops)
      told(now);
    before = now;
    changed.wait_for(lock, now.ok() ? given.renewed_every : given.tried_every,
                     [this] { return stops; });
  }
  lock.unlock();
  if (before && before->ok())
    router->unmap(port);
  lock.lock();
  ended = true;
  changed.notify_all();
}

} // namespace waggle::net
