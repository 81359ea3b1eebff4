#pragma once

#include <memory>
#include <utility>

#include "actors/guard.hpp"
#include "actors/node_context.hpp"
#include "actors/state/state_fetcher.hpp"
#include "runtime/state/state_sync.hpp"

namespace waggle {

/// The download of a state that an actor has asked for.
struct state_request {
  state_fetcher_actor fetcher; // null: none runs
  std::shared_ptr<download_meter> meter;
};

/// Begins a download for the actor `self`. `question.donors` may give the state; `sync`, a member
/// of `self` as `request`, decides whom of them to ask. One of the two functions is called with the
/// result and the donors that offered another state, unless the download is stopped before.
template <class Self, class OnState, class OnFailure>
void request_state(Self* self, const node_context& ctx, const switchboard_actor& switchboard,
                   state_sync& sync, state_request& request, fetch_config how, fetch_state question,
                   OnState on_state, OnFailure on_failure) {
  auto now = [self] { return self->clock().now(); };
  auto asked = sync.ask(std::move(question.donors), now());
  question.donors = std::move(asked.donors);
  question.meter = std::make_shared<download_meter>();
  how.suspects = asked.suspects;
  how.slow = asked.slow;
  request = {self->template spawn<state_fetcher>(ctx, std::move(how), switchboard), question.meter};
  auto awaited = [&sync, &request, now, number = asked.number, slow = asked.slow] {
    sync.note_slow(*slow, now());
    if (!sync.awaits(number))
      return false;
    request.fetcher = nullptr;
    return true;
  };
  self->request(request.fetcher, question.deadline + 5s, std::move(question))
    .then(
      [&sync, now, awaited, on_state](const fetched_state& fetched) {
        if (awaited())
          on_state(fetched,
                   sync.fetched(fetched.donor, fetched.state->size(), fetched.resumed, now()));
      },
      [&sync, now, awaited, on_failure](const caf::error& why) {
        if (awaited())
          on_failure(from_caf(why), sync.failed(now()));
      });
}

/// Ends the download of `self` that runs, if there is one: its result is not needed any more.
template <class Self>
void stop_request(Self* self, state_sync& sync, state_request& request) {
  if (sync.at() != state_sync::phase::fetching)
    return;
  self->send_exit(std::exchange(request.fetcher, nullptr), caf::exit_reason::user_shutdown);
  sync.stop();
}

} // namespace waggle
