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
  return {++number_, donors_.among(std::move(holders), now), suspects_,
          std::make_shared<std::vector<peer_id>>()};
}

void state_sync::note_slow(const std::vector<peer_id>& slow, steady_time now) {
  for (const auto& who : slow)
    donors_.ask_last(who, now);
}

std::vector<peer_id> state_sync::refuse_suspects(steady_time now) {
  for (const auto& who : *suspects_)
    donors_.refuse(who, now);
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
  ask_after_ = now + donors_.failed();
  return refuse_suspects(now);
}

void state_sync::stop() {
  WAGGLE_CHECK(phase_ == phase::fetching, "nothing was asked for");
  phase_ = phase::idle;
}

void state_sync::refused_state(steady_time now) {
  WAGGLE_CHECK(phase_ == phase::loading, "nothing was fetched");
  phase_ = phase::idle;
  donors_.refuse(last_.donor, now);
  ask_after_ = now + donors_.failed();
}

void state_sync::loaded(steady_time now) {
  WAGGLE_CHECK(phase_ == phase::loading, "nothing was fetched");
  phase_ = phase::idle;
  loaded_at_ = now;
  took_ = seconds(now);
}

void state_sync::is_of_use(steady_time now) {
  ask_after_ = now + donors_.succeeded(now);
  slow_pause_ = milliseconds{0};
}

bool state_sync::was_too_old(steady_time now) {
  auto pause = donors_.failed();
  ask_after_ = now + pause;
  return pause >= patience_with_old_states;
}

milliseconds state_sync::was_too_slow() {
  return slow_pause_ = std::clamp(2 * slow_pause_, slow_pause_min, slow_pause_max);
}

} // namespace waggle
