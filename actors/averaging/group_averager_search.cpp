// The group_averager of an averager, or of a moshpit_averager, finds a group by matchmaking:
//
//   find_group ─► matchmaker ─► group_formed ─► open_group::adopt ─► the answer

#include "actors/averaging/group_averager.hpp"
#include "actors/caf_error.hpp"
#include "runtime/allreduce/round_messages.hpp"

namespace waggle {

caf::result<group_formed> group_averager::find(find_group& msg) {
  on_quit();
  if (current_)
    return to_caf(ec::overloaded, "one round at a time");
  one_round_ = msg.one_round;
  lost_.clear();
  (void)announced_.update(now());
  msg.bandwidth = announced_.reported();
  if (one_round_)
    msg.avoided = faults_.excluded(company_, now());
  auto promise = search_.emplace(make_response_promise<group_formed>());
  auto runs = [this, number = ++searches_] { return search_ && searches_ == number; };
  auto elements = elements_of(msg.codecs);
  auto patience = msg.deadline + 2s;
  request(matchmaker_, patience, std::move(msg))
    .then(
      [this, runs, elements](const group_formed& formed) {
        if (runs())
          on_formed(formed, elements);
        else if (!formed.open_group) // found just after the search was given up
          decline(formed.plan);
      },
      [this, runs](const caf::error& why) {
        if (!runs())
          return;
        company_ = 1; // fewer are excluded in the next search
        std::exchange(search_, std::nullopt)->deliver(why);
      });
  return promise;
}

void group_averager::on_formed(const group_formed& formed, std::uint64_t elements) {
  auto promise = *std::exchange(search_, std::nullopt);
  bool fits = is_member(ctx_.record.id, formed.plan) && formed.plan.elements == elements;
  if (fits)
    adopt({formed.plan, formed.terms});
  if (fits || formed.open_group)
    promise.deliver(formed);
  else
    promise.deliver(to_caf(ec::internal, "matchmaking made a plan that does not fit"));
  if (fits && called_ == formed.plan.id) // its leader's call was faster
    on_call(called_);
}

void group_averager::stop_search() {
  if (!search_)
    return;
  send(matchmaker_, cancel_search{});
  std::exchange(search_, std::nullopt)->deliver(to_caf(ec::cancelled));
}

/// A round that is the group's only one ends with its report, as without this.
void group_averager::on_quit() {
  stop_search();
  if (!one_round_ || !group_ || !group_->is_member())
    return quit_from({ec::cancelled, {}});
  if (current_)
    return round_.cancel({ec::cancelled, {}});
  decline(group_->next());
  group_->leave();
}

/// Tells the members of a group that matchmaking formed that we do not take part. They would wait
/// for us. Messages of its round are answered from now on, not kept.
void group_averager::decline(const round_plan& plan) {
  ctx_.rounds->finish(plan.id, {{}, plan.id, {}}, now());
  if (auto message = refusal_of(plan, ctx_.record.id, ec::cancelled))
    for (const auto& m : plan.members)
      if (m.peer.id != ctx_.record.id)
        send(switchboard_, notify_peer{m.peer, *message, {}});
}

} // namespace waggle
