#include "runtime/net/link_budget.hpp"

#include <algorithm>
#include <utility>

#include "runtime/core/own_pages.hpp"

namespace waggle::net {

namespace {

// Smaller bodies come from the heap: a mapping of their own costs more than copying them.
constexpr std::size_t pages_min = 16_KiB;

std::shared_ptr<std::byte> heap_memory(std::size_t bytes) {
  return {new std::byte[bytes], std::default_delete<std::byte[]>{}};
}

} // namespace

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

void stranger_budget::wait(std::weak_ptr<link_budget> link) {
  std::lock_guard guard{mutex_};
  // A link that has ended would otherwise stay here, and one that waits again would be here twice.
  std::erase_if(waiting_, [&](const auto& other) {
    return other.expired() || (!other.owner_before(link) && !link.owner_before(other));
  });
  waiting_.push_back(std::move(link));
}

void stranger_budget::offer(bool welcome) {
  std::vector<std::weak_ptr<link_budget>> waiting;
  {
    std::lock_guard guard{mutex_};
    waiting.swap(waiting_);
  }
  for (const auto& weak : waiting)
    if (auto link = weak.lock(); link && !link->retry_body(welcome))
      wait(link);
}

// -- one link ------------------------------------------------------------------------------------

link_budget::link_budget(std::function<void(bool)> held, std::shared_ptr<stranger_budget> common,
                         limits limits)
  : hold_(std::move(held)), common_(std::move(common)), limits_(limits),
    own_(limits.work_per_second) {}

link_budget::~link_budget() {
  if (is_member_)
    return;
  common_->queues.change(waiting_ + unread_, 0);
  common_->unread_bodies.change(unread_bodies_, 0);
}

void link_budget::become_member() {
  {
    std::lock_guard guard{mutex_};
    if (is_member_)
      return;
    common_->queues.change(waiting_ + unread_, 0);
    common_->unread_bodies.change(unread_bodies_, 0);
    common_->bodies.change(std::exchange(body_bytes_, 0), 0);
    blocked_ = nullptr;
    is_member_ = true;
    update();
  }
  common_->offer();
}

/// REQUIRES: mutex_ is locked, so that `hold_` is called in the order of the changes.
void link_budget::update() {
  bool hold = waiting_ > limits_.waiting_bytes_max || in_debt_ || blocked_ != nullptr;
  if (!is_member_)
    hold = hold || unread_ > limits_.unread_bytes_max
           || (waiting_ + unread_ > limits_.queue_share && common_->queues.too_many());
  if (hold != std::exchange(held_, hold))
    hold_(hold);
}

std::shared_ptr<void> link_budget::admit(std::size_t bytes) {
  auto counted = bytes + limits_.message_overhead;
  {
    std::lock_guard guard{mutex_};
    queued(waiting_ + counted, unread_);
  }
  return {nullptr, [me = shared_from_this(), counted](void*) { me->leave(counted); }};
}

void link_budget::leave(std::size_t bytes) {
  std::lock_guard guard{mutex_};
  queued(waiting_ - bytes, unread_);
}

/// REQUIRES: mutex_ is locked.
void link_budget::queued(std::size_t waiting, std::size_t unread) {
  if (!is_member_)
    common_->queues.change(waiting_ + unread_, waiting + unread);
  waiting_ = waiting;
  unread_ = unread;
  update();
}

void link_budget::unread(std::size_t bytes, std::size_t body_bytes) {
  std::lock_guard guard{mutex_};
  if (!is_member_)
    common_->unread_bodies.change(unread_bodies_, body_bytes);
  unread_bodies_ = body_bytes;
  queued(waiting_, bytes);
}

bool link_budget::may_answer(std::size_t header_bytes, std::size_t body_bytes) const {
  std::lock_guard guard{mutex_};
  auto bodies = unread_bodies_ + body_bytes;
  if (body_bytes > 0 && bodies > limits_.unread_bodies_max)
    return false;
  if (is_member_)
    return true;
  if (body_bytes > 0 && bodies > limits_.unread_bodies_share && common_->unread_bodies.too_many())
    return false;
  return unread_ + header_bytes <= limits_.queue_share
         || (unread_ <= limits_.unread_bytes_max && !common_->queues.too_many());
}

void link_budget::charge(work amount, steady_time now) {
  std::lock_guard guard{mutex_};
  if (own_.take(amount, now) || common_->take_work(amount, now))
    return;
  own_.owe(amount);
  in_debt_ = own_.in_debt(now);
  update();
}

std::shared_ptr<void> link_budget::room(std::size_t bytes, std::function<bool()> welcome) {
  bool counts = !welcome || !welcome();
  auto coming = std::make_shared<announced>(announced{bytes, std::move(welcome), false});
  if (counts) {
    std::lock_guard guard{mutex_};
    if (!is_member_ && !take(*coming)) {
      blocked_ = coming;
      common_->wait(weak_from_this());
      update();
    }
  }
  return {nullptr, [me = shared_from_this(), coming](void*) { me->end(coming); }};
}

/// REQUIRES: mutex_ is locked.
bool link_budget::take(announced& what) {
  what.counted = common_->bodies.take(what.bytes);
  if (what.counted)
    body_bytes_ += what.bytes;
  return what.counted;
}

void link_budget::end(const std::shared_ptr<announced>& what) {
  bool returned = false;
  {
    std::lock_guard guard{mutex_};
    returned = what->counted && !is_member_;
    if (returned) {
      common_->bodies.change(what->bytes, 0);
      body_bytes_ -= what->bytes;
    }
    if (blocked_ == what) {
      blocked_ = nullptr;
      update();
    }
  }
  if (returned)
    common_->offer();
}

std::shared_ptr<std::byte> link_budget::body(std::size_t bytes, std::function<bool()> welcome) {
  auto place = room(bytes, std::move(welcome));
  auto memory = bytes < pages_min ? heap_memory(bytes) : own_pages(bytes);
  auto* raw = memory.get();
  return {raw, [place = std::move(place), memory = std::move(memory)](std::byte*) mutable {
            memory.reset(); // before it counts as returned
            place.reset();
          }};
}

void link_budget::retry(steady_time now) {
  {
    std::lock_guard guard{mutex_};
    in_debt_ = in_debt_ && own_.in_debt(now);
    update();
  }
  (void)retry_body(true); // if it still waits, it is in the list
}

bool link_budget::retry_body(bool welcome) {
  std::shared_ptr<announced> waiting;
  {
    std::lock_guard guard{mutex_};
    waiting = blocked_;
  }
  if (!waiting)
    return true;
  welcome = welcome && waiting->welcome && waiting->welcome(); // without the lock
  std::lock_guard guard{mutex_};
  if (blocked_ != waiting)
    return true;
  if (!welcome && !take(*waiting))
    return false;
  blocked_ = nullptr;
  update();
  return true;
}

bool link_budget::held() const {
  std::lock_guard guard{mutex_};
  return held_;
}

} // namespace waggle::net
