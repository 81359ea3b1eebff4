// begin ─► our contributions ──► owners of the parts (ourselves included)
//   peers' contributions ─► part_reducer ─ all here? ─► sum ── result ──► all participants
//   peers' results ─► result vector ─ complete? ─► round_protocol ─► prepared … commit ─► report
//   lost links, stalls, invalid data ─► round_protocol ─► a new view ─► ship, reduce, collect

#include "runtime/allreduce/round_engine.hpp"

#include <algorithm>
#include <cstring>

#include "runtime/allreduce/round_messages.hpp"
#include "runtime/core/check.hpp"

namespace waggle {

round_engine::round_engine(round_request request, round_config config, const round_memory& memory,
                           std::shared_ptr<round_port> port, clock now)
  : request_(std::move(request)), config_(config), encoder_(request_.values, memory.encoded),
    port_(std::move(port)), now_(std::move(now)),
    protocol_(request_.plan, request_.self_index,
              {request_.plan.min_contributors, config.takeover_timeout}),
    transfers_(request_.plan, request_.self_index, now_()),
    own_(transfers_.parts(), request_.plan.reduce_by),
    result_(transfers_.parts(), request_.self_index, memory.vectors->take(request_.plan.elements)),
    began_(now_()), completed_(began_), deliveries_(plan().members.size(), {0, began_}) {
  for (std::size_t i = 0; i < plan().members.size(); ++i)
    members_.emplace(plan().members[i].peer.id, i);
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
  collect(); // the vector may have no part to wait for
}

void round_engine::on_event(const inbound_event& event) {
  std::lock_guard guard{mutex_};
  handle(event);
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
  auto s = protocol_.promise();
  return {plan().id, s.promised, s.knows_view, s.view, s.prepared, s.committed};
}

void round_engine::check() {
  std::lock_guard guard{mutex_};
  if (reported_)
    return;
  auto now = now_();
  if (now - began_ >= config_.deadline)
    return perform(protocol_.give_up({ec::timeout, "the round did not end by its deadline"}));
  perform(protocol_.on_time(now));
  if (reported_)
    return;
  if (!transfers_.complete()) {
    for (auto member : transfers_.stalled(now, config_.stall_timeout))
      if (!reported_)
        suspect(member, ec::stalled);
    return;
  }
  // A member that still receives our results cannot have confirmed them: on a slow link that also
  // carries a download, the last ones arrive long after they were sent.
  for (std::size_t i = 0; i < deliveries_.size(); ++i)
    if (auto written = port_->body_bytes_written(plan().members[i].peer.id);
        written != std::exchange(deliveries_[i].written, written))
      deliveries_[i].when = now;
  // Other members may wait for results up to twice the stall timeout before they finish or report a
  // stall. The leader gives up earlier than its followers: it may be waiting for a stalled member
  // itself and must not be mistaken for the stalled one. So it extends its wait only a little once
  // a follower has confirmed and waits for it, and up to the round's deadline while none has.
  bool leads = protocol_.coordinator() == request_.self_index;
  auto awaited = protocol_.awaited();
  bool others_wait = awaited.size() + 1 < transfers_.view().participant_set().size();
  bool overdue = leads && others_wait && now - completed_ >= 4 * config_.stall_timeout;
  awaited.for_each([&](std::size_t member) {
    auto since = std::max(completed_, deliveries_[member].when);
    bool silent = now - since >= (leads ? 3 : 5) * config_.stall_timeout;
    if (!reported_ && member != request_.self_index && (silent || overdue))
      suspect(member, ec::stalled);
  });
}

// -- sending --------------------------------------------------------------------------------------

void round_engine::tell(std::size_t member, wire::event what, payload body) {
  bytes_sent_ += body.size;
  port_->send(plan().members[member].peer, std::move(what), std::move(body));
}

void round_engine::send_to(member_set members, const wire::event& what) {
  members.for_each([&](std::size_t member) {
    if (member != request_.self_index)
      tell(member, what);
  });
}

wire::part round_engine::header(std::uint32_t index, wire::part_kind kind) const {
  const auto& part = transfers_.parts()[index];
  wire::part head;
  head.round = plan().id;
  head.view = transfers_.view().number;
  head.kind = kind;
  head.index = index;
  head.offset = part.offset;
  head.count = part.count;
  return head;
}

/// Determines the work of the current view, and reduces the parts that are complete.
void round_engine::work() {
  const auto& view = transfers_.view();
  for (auto index : transfers_.owned())
    own_.want(index, view.contributor_set());
  auto outgoing = transfers_.take_outgoing();
  outgoing_.insert(outgoing_.end(), outgoing.begin(), outgoing.end());
  for (auto index : transfers_.owned())
    reduce_if_complete(index);
}

void round_engine::ship() {
  while (auto next = next_outgoing()) {
    auto bytes = encoder_.contribution(transfers_.parts()[next->part]);
    std::lock_guard guard{mutex_};
    send_part(*next, std::move(bytes));
  }
}

std::optional<transfer_state::outgoing_part> round_engine::next_outgoing() {
  std::lock_guard guard{mutex_};
  if (outgoing_.empty())
    return std::nullopt;
  auto next = outgoing_.front();
  outgoing_.pop_front();
  return next;
}

/// Sends after a view change, with the lock held: few parts change their owner, unless the view
/// changes while `ship` is still running, and other members wait for these parts.
void round_engine::ship_all() {
  while (!outgoing_.empty()) {
    auto next = outgoing_.front();
    outgoing_.pop_front();
    send_part(next, encoder_.contribution(transfers_.parts()[next.part]));
  }
}

/// @param bytes nothing: they could not be encoded.
void round_engine::send_part(const transfer_state::outgoing_part& outgoing_part,
                             std::optional<payload> bytes) {
  if (reported_)
    return;
  if (!bytes)
    return perform(protocol_.give_up({ec::non_finite, "our vector cannot be encoded"}));
  if (outgoing_part.owner == request_.self_index) {
    transfers_.contribution(outgoing_part.part, request_.self_index, transfers_.view().number,
                            now_());
    return add(outgoing_part.part, request_.self_index, request_.weight, *std::move(bytes));
  }
  auto head = header(outgoing_part.part, wire::part_kind::contribution);
  head.weight = request_.weight;
  tell(outgoing_part.owner, head, *std::move(bytes));
}

// -- incoming parts -------------------------------------------------------------------------------

bool round_engine::fits(const wire::part& head, std::size_t bytes) const {
  const auto& parts = transfers_.parts();
  return head.index < parts.size() && head.offset == parts[head.index].offset
         && head.count == parts[head.index].count
         && bytes == encoded_size(parts[head.index].codec, head.count);
}

std::shared_ptr<std::byte> round_engine::destination(const peer_id& from, const wire::part& head,
                                                     std::size_t bytes) {
  std::lock_guard guard{mutex_};
  auto member = members_.find(from);
  if (reported_ || member == members_.end() || head.kind != wire::part_kind::result
      || !fits(head, bytes) || transfers_.parts()[head.index].codec != codec_id::none)
    return nullptr;
  if (!transfers_.awaits_result(head.index, member->second, head.contributors))
    return nullptr;
  return result_.lend(head.index);
}

/// Only single-pass reads may use shared memory: otherwise a peer could change bytes between
/// validation and use (TOCTOU).
bool round_engine::zero_copy_ok(const wire::part& head) const {
  if (head.index >= transfers_.parts().size())
    return false;
  auto codec = transfers_.parts()[head.index].codec;
  return head.kind == wire::part_kind::result ? codec == codec_id::none
                                              : part_reducer::reads_once(codec, plan().reduce_by);
}

void round_engine::handle(const inbound_event& event) {
  auto member = members_.find(event.from.id);
  if (member == members_.end()) {
    port_->count_refused(ec::protocol_violation);
    return event.release();
  }
  if (const auto* part = std::get_if<wire::part>(&event.what)) {
    if (reported_)
      return event.release();
    return on_part(member->second, event, *part);
  }
  event.release();
  on_message(member->second, event.what);
}

void round_engine::refuse(std::size_t member, ec reason) {
  port_->count_refused(reason);
  suspect(member, reason);
}

void round_engine::suspect(std::size_t member, ec reason) {
  if (!first_fault_)
    first_fault_ = now_();
  perform(protocol_.on_suspicion(member, reason, now_()));
}

/// The view's leader may not know of the lost link, and would wait for the messages lost with it.
/// In an adopted view all participants hold the result. The leader itself is not suspected: it has
/// just reached us.
void round_engine::suspect_cut_off() {
  if (transfers_.view().adopted)
    return;
  auto number = transfers_.view().number;
  for (const auto& [member, reason] : std::map{cut_off_})
    if (!reported_ && transfers_.view().number == number && member != protocol_.leader()
        && transfers_.view().participant_set().contains(member))
      suspect(member, reason);
}

void round_engine::on_part(std::size_t from, const inbound_event& event, const wire::part& head) {
  if (!fits(head, event.body.size)) {
    event.release();
    return refuse(from, ec::wrong_shape);
  }
  bool in_place = result_.is_place(head.index, event.body.data.get());
  auto said = head.kind == wire::part_kind::contribution
                ? transfers_.contribution(head.index, from, head.view, now_())
                : transfers_.result(head.index, from, head.contributors, head.view, now_());
  if (said == verdict::later) {
    // Unreleased bodies hold back the sender's window, but many small ones fit into it. No correct
    // member sends more than one contribution and one result of each part, for a view or two.
    if (++parked_from_[from] > 4 * transfers_.parts().size()) {
      event.release();
      return refuse(from, ec::overloaded);
    }
    parked_.push_back(event);
    return;
  }
  if (in_place)
    result_.returned(head.index);
  if (said == verdict::accept)
    accept(from, event.body, head);
  event.release();
  if (said == verdict::refuse)
    refuse(from, ec::protocol_violation);
}

void round_engine::accept(std::size_t from, const payload& body, const wire::part& head) {
  bytes_received_ += body.size;
  port_->count_part();
  if (head.kind == wire::part_kind::contribution)
    return add(head.index, from, head.weight, body);
  std::shared_ptr<const float> values;
  if (result_.is_place(head.index, body.data.get())) { // see `destination`
    if (auto read = result_.read_in_place(head.index); all_finite({read.get(), head.count}))
      values = std::move(read);
  } else {
    auto memory = result_.memory_for(head.index);
    std::span<float> out{memory.get(), head.count};
    auto codec = transfers_.parts()[head.index].codec;
    if (codec == codec_id::none ? copy_finite(body.view(), out)
                                : decode(codec, body.view(), out) && all_finite(out))
      values = std::move(memory);
  }
  if (!values) {
    transfers_.forget_result(head.index);
    return refuse(from, ec::non_finite);
  }
  result_.put(head.index, std::move(values));
  agree_on_weight(head.weight);
  collect();
}

/// All parts must be sums over the same weights. If they are not, a member sent different weights
/// to different reducers, and there is no result.
void round_engine::agree_on_weight(double weight_sum) {
  if (!weight_sum_)
    weight_sum_ = weight_sum;
  else if (*weight_sum_ != weight_sum)
    perform(protocol_.give_up({ec::bad_weight, "parts were summed over different weights"}));
}

// -- parts that we reduce -------------------------------------------------------------------------

void round_engine::add(std::uint32_t index, std::size_t member, double weight, payload values) {
  auto added = own_.add(index, member, weight, std::move(values));
  if (added)
    return reduce_if_complete(index);
  if (member == request_.self_index) // checked before the round began
    return perform(protocol_.give_up({added.error().code, "our own contribution was refused"}));
  refuse(member, added.error().code);
}

void round_engine::reduce_if_complete(std::uint32_t index) {
  if (reported_)
    return;
  auto due = own_.due(index);
  if (!due)
    return;
  auto over = *due;
  const auto& reducer = own_.reducer(index);
  const auto& part = transfers_.parts()[index];
  auto out = result_.memory_for_sum(index);
  if (part.count >= config_.offload_elements) {
    auto job = [me = shared_from_this(), index, over, out, count = part.count, reducer] {
      auto outcome = reducer.reduce(over, {out.get(), count});
      std::lock_guard guard{me->mutex_};
      me->take_reduced(index, over, outcome, out);
    };
    if (port_->offload(std::move(job)))
      return;
  }
  take_reduced(index, over, reducer.reduce(over, {out.get(), part.count}), out);
}

void round_engine::take_reduced(std::uint32_t index, member_set over,
                                const part_reducer::reduction& outcome,
                                const std::shared_ptr<float>& out) {
  if (reported_)
    return;
  if (!outcome.excluded.empty()) {
    for (const auto& found : outcome.excluded) {
      port_->log("leaves out " + short_name(plan().members[found.member].peer.id) + ": "
                 + describe(found));
      if (found.member == request_.self_index)
        perform(protocol_.give_up({found.reason, "our own contribution was refused"}));
      else
        refuse(found.member, found.reason);
    }
    return;
  }
  const auto& view = transfers_.view();
  if (over != view.contributor_set())
    return; // of a previous view
  auto said = transfers_.result(index, request_.self_index, over.bits(), view.number, now_());
  // We may have received this result from another reducer that was lost since; the other members
  // may not have.
  bool had = said == verdict::ignore;
  if ((said != verdict::accept && !had) || !own_.mark_sent(index, over.bits()))
    return;
  const auto& part = transfers_.parts()[index];
  if (!had)
    result_.put(index, out);
  payload bytes{
    std::shared_ptr<const std::byte>{out, reinterpret_cast<const std::byte*>(out.get())},
    part.count * sizeof(float)};
  if (part.codec != codec_id::none) {
    if (auto same = own_.reducer(index).unanimous(over)) {
      bytes = *same;
    } else {
      bytes = encoder_.encoded(part, {out.get(), part.count});
    }
    // Use the values that the other members decode.
    auto decoded = decode(part.codec, bytes.view(), std::span{out.get(), part.count});
    WAGGLE_CHECK(decoded.ok(), "our own encoding does not decode");
  }
  auto head = header(index, wire::part_kind::result);
  head.weight = outcome.weight_sum;
  head.contributors = over.bits();
  // Each reducer begins with the next member, so that the reducers do not all send to the same one
  // first.
  auto members = plan().members.size();
  for (std::size_t step = 1; step < members; ++step)
    if (auto member = (request_.self_index + step) % members;
        view.participant_set().contains(member))
      tell(member, head, bytes);
  agree_on_weight(outcome.weight_sum);
  collect();
}

void round_engine::collect() {
  if (reported_ || !transfers_.complete() || protocol_.ended())
    return;
  completed_ = now_();
  perform(protocol_.on_result_complete(transfers_.view().number));
}

// -- the protocol ---------------------------------------------------------------------------------

void round_engine::on_message(std::size_t from, const wire::event& what) {
  if (const auto* message = std::get_if<wire::round_suspect>(&what)) {
    // The member is not in a round with us and does not want to be; that is not a fault.
    if (message->member == from && message->reason == ec::not_looking)
      return perform(protocol_.give_up({ec::not_looking, "a member looks for another group"}));
    if (!first_fault_)
      first_fault_ = now_();
  }
  perform(receive(protocol_, from, what, now_()));
}

void round_engine::perform(const round_protocol::actions& actions) {
  for (const auto& action : actions) {
    if (auto message = message_of(plan().id, action))
      send_to(message->to, message->what);
    else if (const auto* entered = std::get_if<round_protocol::enter_view>(&action))
      enter(entered->view);
    else if (const auto* decided = std::get_if<round_protocol::commit>(&action))
      commit(decided->view);
    else if (const auto* failed = std::get_if<round_protocol::fail>(&action))
      fail(failed->why);
  }
}

void round_engine::enter(const round_view& view) {
  bool other_sum = view.contributors != transfers_.view().contributors;
  if (other_sum) {
    weight_sum_.reset();
    result_.start_over();
  }
  // Members that start over, too, or that skipped a view, have dropped what we sent. In an adopted
  // view all participants hold the result.
  if (other_sum || !(view.adopted || view.follows(transfers_.view())))
    own_.forget_sent();
  port_->log("goes on as view " + std::to_string(view.number) + " with "
             + std::to_string(view.contributor_set().size()) + " contributors");
  for (const auto& unsent : std::exchange(outgoing_, {}))
    transfers_.give_back(unsent);
  transfers_.enter(view, now_());
  completed_ = now_();
  work();
  ship_all();
  auto parked = std::exchange(parked_, {});
  parked_from_.clear();
  for (const auto& event : parked)
    handle(event);
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
  report.group_size = static_cast<std::uint32_t>(plan().members.size());
  for (std::size_t i = 0; i < plan().members.size(); ++i)
    report.gathered.emplace_back(plan().members[i].peer.id, plan().gathered[i]);
  report.allreduce_seconds = seconds_of(now - began_);
  if (transfers_.complete())
    report.agreement_seconds = seconds_of(now - completed_);
  if (first_fault_)
    report.recovery_seconds = seconds_of(now - *first_fault_);
  report.bytes_sent = bytes_sent_;
  report.bytes_received = bytes_received_;
  for (const auto& [member, reason] : protocol_.lost())
    report.faults.push_back({plan().members[member].peer.id, reason});
  for (const auto& event : parked_)
    event.release();
  parked_.clear();
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
