#include "runtime/state/state_sync.hpp"

#include <algorithm>
#include <utility>

#include "runtime/core/check.hpp"

namespace waggle {

state_sync::request state_sync::ask(std::vector<peer_record> holders, steady_time now) {
  WAGGLE_CHECK(phase_ == phase::idle, "one download at a time");
  phase_ = phase::fetching;
  last_ = {now, {}, 0, false};
  suspects_ = std::make_shared<std::vector<peer_id>>();
  auto refused = [&](const peer_record& donor) { return refused_.holds(donor.id, now); };
  if (!std::all_of(holders.begin(), holders.end(), refused)) // otherwise ask them again
    std::erase_if(holders, refused);
  std::stable_partition(holders.begin(), holders.end(),
                        [&](const peer_record& donor) { return !slow_.holds(donor.id, now); });
  return {++number_, std::move(holders), suspects_, std::make_shared<std::vector<peer_id>>()};
}

void state_sync::note_slow(const std::vector<peer_id>& slow, steady_time now) {
  for (const auto& who : slow)
    (void)slow_.add(who, now);
}

std::vector<peer_id> state_sync::refuse_suspects(steady_time now) {
  for (const auto& who : *suspects_)
    (void)refused_.add(who, now);
  return std::exchange(*suspects_, {});
}

std::vector<peer_id> state_sync::fetched(const peer_id& donor, std::uint64_t bytes, bool resumed,
                                         steady_time now) {
  WAGGLE_CHECK(phase_ == phase::fetching, "nothing was asked for");
  phase_ = phase::loading;
  last_ = {last_.began, donor, bytes, resumed};
  return refuse_suspects(now);
}

std::vector<peer_id> state_sync::failed(steady_time now) {
  WAGGLE_CHECK(phase_ == phase::fetching, "nothing was asked for");
  phase_ = phase::idle;
  (void)pause_after_failure(now);
  return refuse_suspects(now);
}

void state_sync::stop() {
  WAGGLE_CHECK(phase_ == phase::fetching, "nothing was asked for");
  phase_ = phase::idle;
}

void state_sync::refused_state(steady_time now) {
  WAGGLE_CHECK(phase_ == phase::loading, "nothing was fetched");
  phase_ = phase::idle;
  (void)refused_.add(last_.donor, now);
  (void)pause_after_failure(now);
}

void state_sync::differs(steady_time now) {
  if (last_.donor != peer_id{})
    (void)refused_.add(last_.donor, now);
}

void state_sync::loaded(steady_time now) {
  WAGGLE_CHECK(phase_ == phase::loading, "nothing was fetched");
  phase_ = phase::idle;
  loaded_at_ = now;
  took_ = seconds(now);
}

void state_sync::is_of_use(steady_time now) {
  bool repeated = accepted_ && now - *accepted_ < repeated_within;
  repeated_pause_ =
    repeated ? std::clamp(2 * repeated_pause_, pause_min, pause_max) : milliseconds{0};
  ask_after_ = now + repeated_pause_;
  accepted_ = now;
  pause_ = slow_pause_ = milliseconds{0};
}

milliseconds state_sync::pause_after_failure(steady_time now) {
  pause_ = std::clamp(2 * pause_, pause_min, pause_max);
  ask_after_ = now + pause_;
  return pause_;
}

bool state_sync::was_too_old(steady_time now) {
  return pause_after_failure(now) >= patience_with_old_states;
}

milliseconds state_sync::was_too_slow() {
  return slow_pause_ = std::clamp(2 * slow_pause_, slow_pause_min, slow_pause_max);
}

} // namespace waggle
