#include "runtime/allreduce/round_engine.hpp"

#include <algorithm>

#include "runtime/allreduce/round_messages.hpp"
#include "runtime/averaging/group_majority.hpp"
#include "runtime/averaging/patience.hpp"

namespace waggle {

namespace {

/// One more than may lie, if there are as many besides the leader and the accused. Without an
/// assumption about liars (faulty_max 0) one is enough: of a pair of which one accuses the other,
/// the accused is more often the one that is slow.
std::size_t accusers_needed(const round_plan& plan) {
  auto others = std::max<std::size_t>(plan.members.size(), 3) - 2;
  return std::min<std::size_t>(others, plan.reduce_by.faulty_max + std::size_t{1});
}

} // namespace

round_engine::round_engine(round_request request, round_config config, const round_memory& memory,
                           std::shared_ptr<round_port> port, clock now)
  : round_(request, config, memory, std::move(port), std::move(now),
           {request.plan.min_contributors, config.takeover_timeout, accusers_needed(request.plan),
            result_settlement::is_keyed(request.plan, config)
              ? [this] { return settlement_.plain(); }
              : std::function<digest()>{},
            [this](std::size_t leader, const takeover_promises& promises) {
              return proofs_.are_signed(leader, promises);
            }}),
    proofs_(round_), settlement_(round_) {
  round_.perform = [this](const round_protocol::actions& actions) { perform(actions); };
  for (std::size_t i = 0; i < plan().members.size(); ++i)
    members_.emplace(plan().members[i].peer.id, i);
}

// -- events ---------------------------------------------------------------------------------------

void round_engine::begin() {
  std::lock_guard guard{mutex_};
  if (round_.view().contributors == 0) {
    // All members are auxiliaries: there is nothing to sum, and nothing to agree on.
    round_report report{.outcome = round_outcome::complete, .values = round_.request.values};
    for (const auto& m : plan().members)
      report.participants.push_back(m.peer.id);
    return finish(std::move(report));
  }
  work();
  if (auto* audit = settlement_.audit())
    audit->pledges().pledge(); // an auxiliary need not wait until it has sent anything
  settlement_.collect();       // the vector may have no part to wait for
}

void round_engine::on_event(const inbound_event& event) {
  std::lock_guard guard{mutex_};
  handle(event);
}

void round_engine::on_reduced(const reduced_part& sum) {
  std::lock_guard guard{mutex_};
  take_sum(sum);
}

void round_engine::on_lost(const peer_id& peer, ec reason) {
  std::lock_guard guard{mutex_};
  auto member = members_.find(peer);
  if (member == members_.end() || round_.over)
    return;
  if (reason == ec::none)
    reason = ec::peer_lost;
  cut_off_.insert_or_assign(member->second, reason);
  round_.suspect(member->second, reason);
}

void round_engine::on_unreached(const peer_id& peer) {
  std::lock_guard guard{mutex_};
  auto member = members_.find(peer);
  if (member == members_.end() || round_.over || member->second == round_.protocol.coordinator()
      || holders().contains(member->second))
    return;
  round_.suspect(member->second, ec::unreachable);
}

void round_engine::cancel(failure why) {
  std::lock_guard guard{mutex_};
  perform(round_.protocol.give_up(std::move(why)));
}

void round_engine::cancel_unless_prepared(failure why) {
  std::lock_guard guard{mutex_};
  if (!round_.protocol.was_prepared())
    perform(round_.protocol.give_up(std::move(why)));
}

void round_engine::break_off(failure why) {
  std::lock_guard guard{mutex_};
  fail(std::move(why));
}

wire::round_promise round_engine::promise() const {
  std::lock_guard guard{mutex_};
  return current_promise();
}

bool round_engine::was_prepared() const {
  std::lock_guard guard{mutex_};
  return round_.protocol.was_prepared();
}

wire::round_promise round_engine::current_promise() const {
  wire::round_promise out{round_.protocol.promise(), plan().id, {}};
  if (out.committed)
    out.proof = proofs_.of(out.view);
  return out;
}

void round_engine::check() {
  std::lock_guard guard{mutex_};
  if (round_.over)
    return;
  auto now = round_.now();
  if (round_.watch.is_over(now))
    return perform(round_.protocol.give_up({ec::timeout, "the round did not end by its deadline"}));
  perform(round_.protocol.on_time(now));
  if (round_.over)
    return;
  if (!round_.transfers.complete() && !settlement_.is_settled()) {
    give_up_stalled(now);
    return;
  }
  round_watch::agreement known{
    settlement_.awaited(),
    round_.request.slow,
    round_.self(),
    round_.view().participant_set().size(),
    round_.protocol.coordinator() == round_.self(),
    [this](std::size_t i) { return round_.port->body_bytes_written(plan().members[i].peer.id); }};
  round_.watch.stalled(known, now).for_each([&](std::size_t member) {
    if (!round_.over)
      round_.suspect(member, ec::stalled);
  });
  if (!round_.over)
    if (auto* audit = settlement_.audit())
      audit->on_tick();
}

/// A member whose uplink carries the state to newcomers is slow, and they must not go on without
/// it. As long as they depend on it, results may be late for its sake, whoever owes them.
void round_engine::give_up_stalled(steady_time now) {
  auto timeout = round_.config.stall_timeout;
  auto of_results = round_.config.result_timeout > 0ms ? round_.config.result_timeout : 2 * timeout;
  auto longer =
    std::max(timeout, std::min(patience_with_holders * timeout, round_.config.deadline / 3));
  auto holding = holders();
  auto longest = std::max(of_results, 2 * longer);
  auto given_up = round_.transfers.stalled(now, timeout, holding.empty() ? of_results : longest);
  auto too_long = round_.transfers.stalled(now, longer, longest);
  auto newcomers = silent_newcomers();
  auto late = round_.transfers.late(newcomers, now, patience_with_newcomers(round_.config));
  // One to whom another member contributes late has given that one up before we give it up.
  const auto& slow = round_.request.slow;
  auto stayed = not_lost();
  given_up = given_up
             | ((round_.transfers.late(newcomers | slow, now, patience_with_slow)
                 | round_.transfers.late_results(slow, now, 2 * patience_with_slow))
                & slow & stayed);
  ((given_up - (holding - too_long)) | (late & stayed)).for_each([&](std::size_t member) {
    if (!round_.over)
      round_.suspect(member, ec::stalled);
  });
}

member_set round_engine::not_lost() const {
  auto stayed = round_.view().participant_set();
  for (const auto& [member, reason] : round_.protocol.lost())
    stayed.erase(member);
  return stayed;
}

/// Those without which newcomers would go on among themselves.
member_set round_engine::holders() const {
  member_set out;
  auto stayed = not_lost();
  if (round_.request.open_group)
    stayed.for_each([&](std::size_t member) {
      if (leaves_it_to_newcomers(plan(), stayed, member))
        out.insert(member);
    });
  return out;
}

/// Those that have not sent anything yet, not even the beginning of a part. An identity costs
/// nothing, so nobody has to wait for one that has never contributed.
member_set round_engine::silent_newcomers() const {
  member_set out;
  if (round_.request.open_group)
    for (std::size_t i = 0; i < plan().members.size(); ++i)
      if (plan().gathered[i] == newcomer_mark && i != round_.self() && !heard_.contains(i))
        out.insert(i);
  return out;
}

// -- the protocol ---------------------------------------------------------------------------------

/// A group that was found for this round looks for another one together. The member is not in a
/// round with us and does not want to be; that is not a fault. One whose contribution or result is
/// here has finished this round, and means the group's next one.
void round_engine::on_departure(std::size_t from) {
  if (!round_.over) {
    auto owned = round_.transfers.owned();
    bool took_part = std::ranges::any_of(
      owned, [&](auto index) { return round_.own.reducer(index).present().contains(from); });
    if (took_part || round_.transfers.has_result_of(from))
      return;
    if (plan().members[from].mode == member_mode::auxiliary)
      return round_.suspect(from, ec::not_looking); // the others have all contributions
  }
  perform(round_.protocol.give_up({ec::not_looking, "a member looks for another group"}));
}

void round_engine::on_message(std::size_t from, const wire::event& what) {
  if (const auto* message = std::get_if<wire::round_suspect>(&what)) {
    bool leaves = message->member == from;
    // In an open group, whoever leaves costs itself this round, and nobody else: it is lost.
    if (leaves && round_.request.open_group)
      left_.insert(from);
    else if (leaves && message->reason == ec::not_looking)
      return on_departure(from);
    round_.watch.fault(round_.now());
  }
  auto* audit = settlement_.audit();
  if (round_.over) {
    // Until the registry answers: it does not know yet how the round ended here.
    if (auto answer = late_answer(what, current_promise()))
      round_.send_to(std::vector{from}, *answer);
  } else if (const auto* share = std::get_if<wire::round_key_share>(&what)) {
    settlement_.on_share(from, *share);
  } else if (const auto* digests = std::get_if<wire::round_digests>(&what)) {
    settlement_.on_digests(from, *digests);
  } else if (const auto* pledges = std::get_if<wire::round_pledge_digests>(&what)) {
    settlement_.on_pledge_digests(from, *pledges);
  } else if (const auto* right = std::get_if<wire::round_checked>(&what)) {
    settlement_.on_checked(from, right->view);
  } else if (const auto* challenged = std::get_if<wire::round_challenge>(&what)) {
    if (audit != nullptr)
      audit->on_challenge(from, *challenged);
  } else if (const auto* prepared = std::get_if<wire::round_prepared>(&what)) {
    proofs_.on_prepared(from, *prepared);
  } else if (const auto* decided = std::get_if<wire::round_commit>(&what)) {
    proofs_.on_commit(from, *decided);
  } else if (const auto* promise = std::get_if<wire::round_promise>(&what)) {
    proofs_.on_promise(from, *promise);
  } else {
    perform(receive(round_.protocol, from, what, round_.now()));
  }
}

void round_engine::perform(const round_protocol::actions& actions) {
  for (const auto& action : actions) {
    // Over: an action before this one has ended the round, and the marks are reported.
    if (std::holds_alternative<round_protocol::send_prepared>(action) && !round_.over)
      round_.marks.confirmed(round_.self(), round_.now());
    if (auto message = message_of(plan().id, action)) {
      proofs_.sign(action, message->what);
      round_.send_to(message->to, message->what);
      if (std::holds_alternative<round_protocol::send_prepared>(action))
        settlement_.send_repairs();
    } else if (const auto* entered = std::get_if<round_protocol::enter_view>(&action))
      enter(entered->view);
    else if (std::holds_alternative<round_protocol::compare_results>(action))
      settlement_.compare();
    else if (std::holds_alternative<round_protocol::await_repair>(action))
      settlement_.ask_for_repair();
    else if (const auto* decided = std::get_if<round_protocol::commit>(&action))
      commit(decided->view);
    else if (const auto* failed = std::get_if<round_protocol::fail>(&action))
      fail(failed->why);
  }
}

void round_engine::enter(const round_view& view) {
  auto before = round_.view();
  auto now = round_.now();
  // Whoever looks at its clock first accuses a member that is silent to all; the others, who would
  // have noticed soon, noticed it, too.
  auto nearly = round_.config.stall_timeout * 3 / 4;
  auto left_out = before.participant_set() - view.participant_set();
  (round_.transfers.stalled(now, nearly, 2 * nearly) & left_out).for_each([&](std::size_t member) {
    round_.seen.emplace(member, ec::stalled);
  });
  bool other_sum = view.contributors != before.contributors;
  if (other_sum)
    round_.result.start_over();
  round_.weights.enter(other_sum, view.participant_set());
  settlement_.leave(view);
  // Members that start over, too, or that skipped a view, have dropped what we sent. In an adopted
  // view all participants hold the result.
  if (other_sum || !(view.adopted || view.follows(before)))
    round_.own.forget_sent();
  round_.port->log("goes on as view " + std::to_string(view.number) + " with "
                   + std::to_string(view.contributor_set().size()) + " contributors");
  for (const auto& unsent : std::exchange(outgoing_, {}))
    round_.transfers.give_back(unsent);
  round_.transfers.enter(view, round_.now());
  settlement_.enter(before.number, !other_sum);
  round_.watch.advanced(round_.now());
  work();
  ship_all();
  if (auto* audit = settlement_.audit())
    audit->pledges().pledge();
  auto parked = std::exchange(round_.parked, {});
  round_.parked_from.clear();
  for (const auto& event : parked)
    handle(event);
  proofs_.take_early();
  settlement_.collect();
  suspect_cut_off();
}

/// The view's leader may not know of the lost link, and would wait for the messages lost with it.
/// In an adopted view all participants hold the result. The leader itself is not suspected: it has
/// just reached us.
void round_engine::suspect_cut_off() {
  const auto& view = round_.view();
  if (view.adopted)
    return;
  auto number = view.number;
  for (const auto& [member, reason] : std::map{cut_off_})
    if (!round_.over && view.number == number && member != round_.protocol.leader()
        && view.participant_set().contains(member))
      round_.suspect(member, reason);
}

void round_engine::commit(const round_view& view) {
  round_report report;
  report.outcome = view.contributors == first_view(plan()).contributors ? round_outcome::complete
                                                                        : round_outcome::shrunk;
  view.contributor_set().for_each(
    [&](std::size_t member) { report.contributors.push_back(plan().members[member].peer.id); });
  view.participant_set().for_each(
    [&](std::size_t member) { report.participants.push_back(plan().members[member].peer.id); });
  report.weight_sum = round_.weights.sum.value_or(0);
  if (report.weight_sum == 0)
    report.values =
      round_.request.values; // nobody contributed: INV-4 in runtime/training/README.md
  else
    report.values = round_.result.whole();
  if (report.outcome == round_outcome::shrunk && !round_.protocol.lost().empty())
    report.why = {round_.protocol.lost().begin()->second, "members were lost"};
  finish(std::move(report));
}

void round_engine::fail(failure why) {
  round_report report{.why = std::move(why)};
  finish(std::move(report));
}

void round_engine::finish(round_report report) {
  if (std::exchange(round_.over, true))
    return;
  auto now = round_.now();
  report.round = plan().id;
  report.epoch = plan().epoch;
  report.group_size = static_cast<std::uint32_t>(plan().members.size());
  for (std::size_t i = 0; i < plan().members.size(); ++i)
    report.gathered.emplace_back(plan().members[i].peer.id, plan().gathered[i]);
  report.allreduce_seconds = round_.watch.since_begin(now);
  if (round_.transfers.complete())
    report.agreement_seconds = round_.watch.since_complete(now);
  report.recovery_seconds = round_.watch.since_fault(now);
  for (const auto& [member, reason] : round_.protocol.lost()) {
    auto noticed = round_.seen.find(member);
    bool seen = noticed != round_.seen.end();
    report.faults.push_back({plan().members[member].peer.id, seen ? noticed->second : reason, seen,
                             left_.contains(member)});
  }
  for (std::size_t i = 0; i < round_.marks.members.size(); ++i)
    round_.marks.members[i].weight = round_.weights.told(i).value_or(0);
  report.marks = std::make_shared<const round_marks>(std::move(round_.marks));
  for (const auto& event : round_.parked)
    event.release();
  round_.parked.clear();
  if (auto* audit = settlement_.audit())
    audit->forget();
  outgoing_.clear();
  round_.own.clear();
  round_finished how{.report = std::move(report),
                     .promise = current_promise(),
                     .was_prepared = round_.protocol.was_prepared()};
  round_.port->finished(std::move(how));
}

} // namespace waggle
