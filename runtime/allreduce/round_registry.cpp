#include "runtime/allreduce/round_registry.hpp"

namespace waggle {

namespace {

struct find_round {
  template <class Event>
  const round_id* operator()(const Event& event) const {
    if constexpr (requires { event.round; })
      return &event.round;
    else
      return nullptr;
  }
};

bool announces_departure(const inbound_event& event) {
  const auto* message = std::get_if<wire::round_suspect>(&event.what);
  return message != nullptr && message->reason == ec::not_looking;
}

/// For the group; not for the round itself.
bool is_about_bandwidths(const inbound_event& event) {
  return std::holds_alternative<wire::bandwidth_report>(event.what)
         || std::holds_alternative<wire::new_partition>(event.what);
}

} // namespace

const round_id* round_of(const wire::event& event) {
  return std::visit(find_round{}, event);
}

void round_registry::begin(const std::shared_ptr<round_engine>& round, group_listener on_group) {
  {
    std::lock_guard guard{mutex_};
    auto& entry = rounds_[round->plan().id];
    auto waiting = std::exchange(entry.parked, {});
    parked_ -= waiting.size();
    entry.running = round;
    entry.on_group = std::move(on_group);
    round->begin();
    // With the lock held, so that later events do not overtake earlier ones.
    for (const auto& event : waiting)
      if (is_about_bandwidths(event)) {
        event.release();
        entry.on_group(event.from, event.what);
      } else {
        round->on_event(event);
      }
  }
  round->ship(); // without the lock: encoding takes long
}

void round_registry::finish(const round_id& id, const wire::round_promise& promise,
                            steady_time now) {
  std::shared_ptr<round_engine> ended; // its buffers are freed without the lock
  std::lock_guard guard{mutex_};
  auto& entry = rounds_[id];
  ended = std::exchange(entry.running, nullptr);
  entry.promise = promise;
  entry.since = now;
  // Events are parked here only if the round ended before it began.
  auto waiting = std::exchange(entry.parked, {});
  parked_ -= waiting.size();
  for (const auto& event : waiting) {
    event.release();
    answer_late(entry, event);
  }
}

bool round_registry::deliver(const inbound_event& event, steady_time now) {
  const auto* id = round_of(event.what);
  if (id == nullptr)
    return false;
  std::shared_ptr<round_engine> running;
  {
    std::lock_guard guard{mutex_};
    auto found = rounds_.find(*id);
    if (found != rounds_.end() && found->second.on_group) {
      if (announces_departure(event) || is_about_bandwidths(event))
        found->second.on_group(event.from, event.what);
      if (is_about_bandwidths(event)) {
        event.release();
        return true;
      }
    }
    if (found != rounds_.end() && found->second.promise) {
      event.release();
      answer_late(found->second, event);
      return true;
    }
    if (found != rounds_.end() && found->second.running) {
      running = found->second.running;
    } else if (parked_ >= limits_.parked_events_max) {
      event.release();
      return false;
    } else {
      auto& entry = found != rounds_.end() ? found->second : rounds_[*id];
      if (entry.parked.empty())
        entry.since = now;
      entry.parked.push_back(event);
      ++parked_;
      return true;
    }
  }
  try {
    running->on_event(event);
  } catch (const std::exception& e) { // this thread does not belong to the round
    running->break_off({ec::internal, e.what()});
  }
  return true;
}

void round_registry::answer_late(const entry& over, const inbound_event& event) const {
  auto promise = *over.promise;
  if (const auto* takeover = std::get_if<wire::round_takeover>(&event.what)) {
    if (promise.committed)
      promise.promised = takeover->number;
    else
      promise.knows_view = false; // the round failed here: we neither hold nor promise anything
    answer_(event.from, promise);
    return;
  }
  // A member that still works on a round that is committed here has missed a message.
  bool asks =
    std::holds_alternative<wire::round_propose>(event.what)
    || (std::holds_alternative<wire::round_suspect>(event.what) && !announces_departure(event));
  if (asks && promise.committed)
    answer_(event.from, wire::round_commit{promise.round, promise.view});
}

std::shared_ptr<round_engine> round_registry::running(const round_id& id) {
  std::lock_guard guard{mutex_};
  auto found = rounds_.find(id);
  return found == rounds_.end() ? nullptr : found->second.running;
}

std::shared_ptr<std::byte> round_registry::destination(const peer_id& from, const wire::part& head,
                                                       std::size_t bytes) {
  auto round = running(head.round);
  return round ? round->destination(from, head, bytes) : nullptr;
}

bool round_registry::zero_copy_ok(const wire::part& head) {
  auto round = running(head.round);
  return round && round->zero_copy_ok(head);
}

std::size_t round_registry::forget_old(steady_time now) {
  std::lock_guard guard{mutex_};
  std::size_t unwanted = 0;
  std::erase_if(rounds_, [&](auto& item) {
    auto& [id, entry] = item;
    if (entry.running)
      return false;
    auto age = now - entry.since;
    if (entry.promise)
      return age >= limits_.remembered_for;
    if (age < limits_.parked_for)
      return false;
    for (const auto& event : entry.parked)
      event.release();
    unwanted += entry.parked.size();
    parked_ -= entry.parked.size();
    return true;
  });
  return unwanted;
}

} // namespace waggle
