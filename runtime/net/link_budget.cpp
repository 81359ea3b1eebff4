#include "runtime/net/link_budget.hpp"

#include <algorithm>
#include <utility>

namespace waggle::net {

// -- work ----------------------------------------------------------------------------------------

void work_bucket::refill(steady_time now) {
  auto since = std::exchange(as_of_, std::max(as_of_.value_or(now), now));
  if (!since || now <= *since)
    return;
  auto gone = std::chrono::duration<double>(now - *since).count();
  // After an hour the bucket is full, whatever was owed.
  auto grown = std::min(gone, 3600.0) * static_cast<double>(per_second_.count());
  left_ = std::min(per_second_, left_ + work{static_cast<work::rep>(grown)});
}

bool work_bucket::take(work amount, steady_time now) {
  refill(now);
  if (left_ < amount)
    return false;
  left_ -= amount;
  return true;
}

bool work_bucket::in_debt(steady_time now) {
  refill(now);
  return left_ < work{0};
}

bool work_bucket::is_full(steady_time now) {
  refill(now);
  return left_ >= per_second_;
}

bool stranger_budget::take_work(work amount, steady_time now) {
  std::lock_guard guard{mutex_};
  return surplus_.take(amount, now);
}

// -- memory --------------------------------------------------------------------------------------

bool stranger_budget::take_body(std::size_t bytes) {
  std::lock_guard guard{mutex_};
  if (bytes > limits_.body_bytes_max - body_bytes_)
    return false;
  body_bytes_ += bytes;
  return true;
}

void stranger_budget::return_body(std::size_t bytes) {
  std::lock_guard guard{mutex_};
  body_bytes_ -= bytes;
}

std::size_t stranger_budget::body_bytes() const {
  std::lock_guard guard{mutex_};
  return body_bytes_;
}

// -- one link ------------------------------------------------------------------------------------

link_budget::link_budget(std::function<void(bool)> held, std::shared_ptr<stranger_budget> common,
                         limits limits)
  : hold_(std::move(held)), common_(std::move(common)), limits_(limits),
    own_(limits.work_per_second) {}

link_budget::link_budget(std::function<void(bool)> held, std::shared_ptr<stranger_budget> common)
  : link_budget(std::move(held), std::move(common), limits{}) {}

/// REQUIRES: mutex_ is locked, so that `hold_` is called in the order of the changes.
void link_budget::update() {
  bool hold = waiting_ > limits_.waiting_bytes_max || in_debt_ || blocked_ != nullptr;
  if (hold != std::exchange(held_, hold))
    hold_(hold);
}

std::shared_ptr<void> link_budget::admit(std::size_t bytes) {
  auto counted = bytes + limits_.message_overhead;
  {
    std::lock_guard guard{mutex_};
    waiting_ += counted;
    update();
  }
  return {nullptr, [me = shared_from_this(), counted](void*) { me->leave(counted); }};
}

void link_budget::leave(std::size_t bytes) {
  std::lock_guard guard{mutex_};
  waiting_ -= bytes;
  update();
}

void link_budget::charge(work amount, steady_time now) {
  std::lock_guard guard{mutex_};
  if (own_.take(amount, now) || common_->take_work(amount, now))
    return;
  own_.owe(amount);
  in_debt_ = own_.in_debt(now);
  update();
}

std::shared_ptr<std::byte> link_budget::body(std::size_t bytes) {
  auto announced = std::make_shared<announced_body>(announced_body{bytes, false});
  {
    std::lock_guard guard{mutex_};
    announced->granted = common_->take_body(bytes);
    if (!announced->granted) {
      blocked_ = announced;
      update();
    }
  }
  return {new std::byte[bytes], [me = shared_from_this(), announced](const std::byte* memory) {
            delete[] memory;
            me->end_body(announced);
          }};
}

void link_budget::end_body(const std::shared_ptr<announced_body>& body) {
  std::lock_guard guard{mutex_};
  if (body->granted)
    common_->return_body(body->bytes);
  if (blocked_ == body) {
    blocked_ = nullptr;
    update();
  }
}

void link_budget::retry(steady_time now) {
  std::lock_guard guard{mutex_};
  in_debt_ = in_debt_ && own_.in_debt(now);
  if (blocked_ && common_->take_body(blocked_->bytes)) {
    blocked_->granted = true;
    blocked_ = nullptr;
  }
  update();
}

bool link_budget::held() const {
  std::lock_guard guard{mutex_};
  return held_;
}

} // namespace waggle::net
