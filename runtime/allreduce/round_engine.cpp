// begin ─► our contributions ──► owners of the parts (ourselves included)
//   peers' contributions ─► part_reducer ─ all here? ─► sum ── result ──► all participants
//   peers' results ─► result vector ─ complete? ─► round_protocol ─► prepared … commit ─► report
//   lost links, stalls, invalid data ─► round_protocol ─► a new view ─► ship, reduce, collect

#include "runtime/allreduce/round_engine.hpp"

#include <algorithm>

#include "runtime/allreduce/adopted_result.hpp"
#include "runtime/allreduce/round_messages.hpp"
#include "runtime/averaging/group_majority.hpp"

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
  : request_(std::move(request)), config_(config), encoder_(request_.values, memory.encoded),
    port_(std::move(port)), now_(std::move(now)),
    protocol_(request_.plan, request_.self_index,
              {request_.plan.min_contributors, config.takeover_timeout,
               accusers_needed(request_.plan),
               keyed() ? [this] { return result_digest(terms(), own_groups()); }
                       : std::function<digest()>{},
               [this](std::size_t leader, const takeover_promises& promises) {
                 return are_signed(leader, promises);
               }}),
    transfers_(request_.plan, request_.self_index, now_()),
    own_(transfers_.parts(), request_.plan.reduce_by),
    result_(transfers_.parts(), request_.self_index, memory.vectors->take(request_.plan.elements)),
    told_(request_.plan.members.size()), groups_(transfers_.parts()),
    pledges_(transfers_.view().contributor_set(), transfers_.parts().size()),
    contributed_(checked() ? transfers_.parts().size() : 0),
    checks_(transfers_.parts(), request_.plan.reduce_by),
    watch_(plan().members.size(), config_, now_()) {
  marks_.began = now_();
  marks_.self = request_.self_index;
  marks_.members.resize(plan().members.size());
  for (std::size_t i = 0; i < plan().members.size(); ++i) {
    members_.emplace(plan().members[i].peer.id, i);
    marks_.members[i].peer = plan().members[i].peer.id;
    marks_.members[i].contributes = plan().members[i].mode != member_mode::auxiliary;
    marks_.members[i].reduces = plan().shares[i] > 0;
  }
}

// -- events ---------------------------------------------------------------------------------------

void round_engine::begin() {
  std::lock_guard guard{mutex_};
  if (transfers_.view().contributors == 0) {
    // All members are auxiliaries: there is nothing to sum, and nothing to agree on.
    round_report report;
    report.outcome = round_outcome::complete;
    report.values = request_.values;
    for (const auto& m : plan().members)
      report.participants.push_back(m.peer.id);
    return finish(std::move(report));
  }
  work();
  pledge();  // an auxiliary need not wait until it has sent anything
  collect(); // the vector may have no part to wait for
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
  if (member == members_.end() || reported_)
    return;
  if (reason == ec::none)
    reason = ec::peer_lost;
  cut_off_.insert_or_assign(member->second, reason);
  suspect(member->second, reason);
}

void round_engine::cancel(failure why) {
  std::lock_guard guard{mutex_};
  perform(protocol_.give_up(std::move(why)));
}

void round_engine::cancel_unless_prepared(failure why) {
  std::lock_guard guard{mutex_};
  if (!protocol_.was_prepared())
    perform(protocol_.give_up(std::move(why)));
}

void round_engine::break_off(failure why) {
  std::lock_guard guard{mutex_};
  round_report report;
  report.why = std::move(why);
  finish(std::move(report));
}

wire::round_promise round_engine::promise() const {
  std::lock_guard guard{mutex_};
  return current_promise();
}

wire::round_promise round_engine::current_promise() const {
  auto out = message_of(plan().id, protocol_.promise());
  if (out.committed)
    out.proof = proof_of(out.view);
  return out;
}

void round_engine::check() {
  std::lock_guard guard{mutex_};
  if (reported_)
    return;
  auto now = now_();
  if (watch_.is_over(now))
    return perform(protocol_.give_up({ec::timeout, "the round did not end by its deadline"}));
  perform(protocol_.on_time(now));
  if (reported_)
    return;
  if (!transfers_.complete() && !is_settled()) {
    give_up_stalled(now);
    return;
  }
  round_watch::agreement known{
    silent(), request_.self_index, transfers_.view().participant_set().size(),
    protocol_.coordinator() == request_.self_index,
    [this](std::size_t i) { return port_->body_bytes_written(plan().members[i].peer.id); }};
  watch_.stalled(known, now).for_each([&](std::size_t member) {
    if (!reported_)
      suspect(member, ec::stalled);
  });
  if (!reported_)
    check_evidence();
}

/// A member whose uplink carries the state to newcomers is slow, and they must not go on without
/// it. As long as they depend on it, results may be late for its sake, whoever owes them.
void round_engine::give_up_stalled(steady_time now) {
  auto timeout = config_.stall_timeout;
  auto longer = std::max(timeout, std::min(patience_with_holders * timeout, config_.deadline / 3));
  auto stayed = transfers_.view().participant_set();
  for (const auto& [member, reason] : protocol_.lost())
    stayed.erase(member);
  member_set holders;
  if (request_.open_group)
    stayed.for_each([&](std::size_t member) {
      if (leaves_it_to_newcomers(plan(), stayed, member))
        holders.insert(member);
    });
  auto given_up = transfers_.stalled(now, timeout, 2 * (holders.empty() ? timeout : longer));
  auto too_long = transfers_.stalled(now, longer, 2 * longer);
  auto newcomers =
    transfers_.late(silent_newcomers(), now, patience_with_newcomers(config_)) & stayed;
  ((given_up - (holders - too_long)) | newcomers).for_each([&](std::size_t member) {
    if (!reported_)
      suspect(member, ec::stalled);
  });
}

/// Those that have not sent anything yet, not even the beginning of a part. An identity costs
/// nothing, so nobody has to wait for one that has never contributed.
member_set round_engine::silent_newcomers() const {
  member_set out;
  if (request_.open_group)
    for (std::size_t i = 0; i < plan().members.size(); ++i)
      if (plan().gathered[i] == newcomer_mark && i != request_.self_index && !heard_.contains(i))
        out.insert(i);
  return out;
}

// -- the protocol ---------------------------------------------------------------------------------

void round_engine::on_message(std::size_t from, const wire::event& what) {
  if (const auto* message = std::get_if<wire::round_suspect>(&what)) {
    // In an open group, whoever leaves costs itself this round, and nobody else: it is lost.
    if (message->member == from && request_.open_group)
      left_.insert(from);
    // A group that was found for this round looks for another one together. The member is not in a
    // round with us and does not want to be; that is not a fault. One whose
    // contribution or result is here has finished this round, and means the group's next one.
    else if (message->member == from && message->reason == ec::not_looking) {
      auto owned = transfers_.owned();
      bool took_part = !reported_ && std::any_of(owned.begin(), owned.end(), [&](auto index) {
        return own_.reducer(index).present().contains(from);
      });
      if (took_part || (!reported_ && transfers_.has_result_of(from)))
        return;
      if (!reported_ && plan().members[from].mode == member_mode::auxiliary)
        return suspect(from, ec::not_looking); // the others have all contributions
      return perform(protocol_.give_up({ec::not_looking, "a member looks for another group"}));
    }
    watch_.fault(now_());
  }
  if (reported_) {
    // The registry answers once it knows how the round ended here.
    if (protocol_.ended() && std::holds_alternative<wire::round_takeover>(what))
      perform(receive(protocol_, from, what, now_()));
    return;
  }
  if (const auto* share = std::get_if<wire::round_key_share>(&what))
    return on_share(from, *share);
  if (const auto* digests = std::get_if<wire::round_digests>(&what))
    return on_digests(from, *digests);
  if (const auto* digests = std::get_if<wire::round_pledge_digests>(&what))
    return on_pledge_digests(from, *digests);
  if (const auto* right = std::get_if<wire::round_checked>(&what))
    return on_checked(from, right->view);
  if (const auto* challenged = std::get_if<wire::round_challenge>(&what)) {
    if (checked() && challenged->view == transfers_.view().number)
      on_challenge(from, challenged->part);
    return;
  }
  if (const auto* prepared = std::get_if<wire::round_prepared>(&what))
    return on_prepared(from, *prepared);
  if (const auto* decided = std::get_if<wire::round_commit>(&what))
    return on_commit(from, *decided);
  if (const auto* promise = std::get_if<wire::round_promise>(&what))
    return on_promise(from, *promise);
  perform(receive(protocol_, from, what, now_()));
}

void round_engine::perform(const round_protocol::actions& actions) {
  for (const auto& action : actions) {
    if (auto message = message_of(plan().id, action)) {
      sign(action, message->what);
      send_to(message->to, message->what);
      if (std::holds_alternative<round_protocol::send_prepared>(action))
        send_repairs();
    } else if (const auto* entered = std::get_if<round_protocol::enter_view>(&action))
      enter(entered->view);
    else if (std::holds_alternative<round_protocol::compare_results>(action))
      compare();
    else if (std::holds_alternative<round_protocol::await_repair>(action))
      ask_for_repair();
    else if (const auto* decided = std::get_if<round_protocol::commit>(&action))
      commit(decided->view);
    else if (const auto* failed = std::get_if<round_protocol::fail>(&action))
      fail(failed->why);
  }
}

void round_engine::enter(const round_view& view) {
  const auto& before = transfers_.view();
  // Whoever looks at its clock first accuses a member that is silent to all; the others, who would
  // have noticed soon, noticed it, too.
  auto nearly = config_.stall_timeout * 3 / 4;
  auto left_out = before.participant_set() - view.participant_set();
  (transfers_.stalled(now_(), nearly, 2 * nearly) & left_out).for_each([this](std::size_t member) {
    seen_.emplace(member, ec::stalled);
  });
  bool other_sum = view.contributors != before.contributors;
  if (other_sum)
    result_.start_over();
  if (other_sum)
    reported_weights_.clear();
  else
    std::erase_if(reported_weights_, [&](const auto& reported) {
      return !view.participant_set().contains(reported.first);
    });
  // A key belongs to one view.
  bool other_key = keyed() && !view.adopted;
  if (other_sum || other_key || (!view.adopted && view.participants != before.participants)) {
    weight_sum_.reset();
    own_groups_.clear();
    digest_.reset();
  }
  // In an adopted view nothing is judged: true once most members are known to hold its result.
  judged_ = false;
  auto compared = before.number;
  comparing_ = repairing_ = false;
  repaired_ = {};
  forget_checks();
  // Members that start over, too, or that skipped a view, have dropped what we sent. In an adopted
  // view all participants hold the result.
  if (other_sum || !(view.adopted || view.follows(transfers_.view())))
    own_.forget_sent();
  port_->log("goes on as view " + std::to_string(view.number) + " with "
             + std::to_string(view.contributor_set().size()) + " contributors");
  for (const auto& unsent : std::exchange(outgoing_, {}))
    transfers_.give_back(unsent);
  transfers_.enter(view, now_());
  repair_.reset();
  judged_ = view.adopted && !other_sum
            && holds_what_most_listed(compared, lists_, view, plan(), request_.self_index, terms());
  watch_.advanced(now_());
  work();
  ship_all();
  pledge();
  auto parked = std::exchange(parked_, {});
  parked_from_.clear();
  for (const auto& event : parked)
    handle(event);
  take_early_reports();
  collect();
  suspect_cut_off();
}

void round_engine::commit(const round_view& view) {
  round_report report;
  report.outcome = view.contributors == first_view(plan()).contributors ? round_outcome::complete
                                                                        : round_outcome::shrunk;
  view.contributor_set().for_each(
    [&](std::size_t member) { report.contributors.push_back(plan().members[member].peer.id); });
  view.participant_set().for_each(
    [&](std::size_t member) { report.participants.push_back(plan().members[member].peer.id); });
  report.weight_sum = weight_sum_.value_or(0);
  if (report.weight_sum == 0)
    report.values = request_.values; // nobody contributed: INV-4 in runtime/training/README.md
  else
    report.values = result_.whole();
  if (report.outcome == round_outcome::shrunk && !protocol_.lost().empty())
    report.why = {protocol_.lost().begin()->second, "members were lost"};
  finish(std::move(report));
}

void round_engine::fail(const failure& why) {
  round_report report;
  report.outcome = round_outcome::failed;
  report.why = why;
  finish(std::move(report));
}

void round_engine::finish(round_report report) {
  if (std::exchange(reported_, true))
    return;
  auto now = now_();
  report.round = plan().id;
  report.epoch = plan().epoch;
  report.group_size = static_cast<std::uint32_t>(plan().members.size());
  for (std::size_t i = 0; i < plan().members.size(); ++i)
    report.gathered.emplace_back(plan().members[i].peer.id, plan().gathered[i]);
  report.allreduce_seconds = watch_.since_begin(now);
  if (transfers_.complete())
    report.agreement_seconds = watch_.since_complete(now);
  report.recovery_seconds = watch_.since_fault(now);
  report.bytes_sent = bytes_sent_;
  report.bytes_received = bytes_received_;
  for (const auto& [member, reason] : protocol_.lost()) {
    auto noticed = seen_.find(member);
    bool seen = noticed != seen_.end();
    report.faults.push_back({plan().members[member].peer.id, seen ? noticed->second : reason, seen,
                             left_.contains(member)});
  }
  for (std::size_t i = 0; i < marks_.members.size(); ++i)
    marks_.members[i].weight = told_[i].value_or(0);
  report.marks = std::make_shared<const round_marks>(std::move(marks_));
  for (const auto& event : parked_)
    event.release();
  parked_.clear();
  forget_checks();
  outgoing_.clear();
  own_.clear();
  round_finished how;
  how.promise = current_promise();
  how.was_prepared = protocol_.was_prepared();
  how.all_took_part = report.outcome == round_outcome::complete && protocol_.lost().empty()
                      && transfers_.view().participant_set().size() == plan().members.size();
  how.report = std::move(report);
  port_->finished(std::move(how));
}

} // namespace waggle
