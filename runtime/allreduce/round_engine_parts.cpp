// The round_engine sends our parts, takes those of other members, and reduces those that we own.

#include "runtime/allreduce/round_engine.hpp"
#include "runtime/core/check.hpp"

namespace waggle {

// -- sending --------------------------------------------------------------------------------------

void round_engine::tell(std::size_t member, wire::event what, payload body) {
  bytes_sent_ += body.size;
  if (!reported_)
    marks_.members[member].bytes_out += body.size;
  port_->send(plan().members[member].peer, std::move(what), std::move(body));
}

void round_engine::send_to(member_set members, const wire::event& what, const payload& body) {
  members.for_each([&](std::size_t member) {
    if (member != request_.self_index)
      tell(member, what, body);
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
    auto pledged = digest_to_pledge(bytes);
    std::lock_guard guard{mutex_};
    send_part(*next, std::move(bytes), pledged);
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
    auto bytes = encoder_.contribution(transfers_.parts()[next.part]);
    auto pledged = digest_to_pledge(bytes);
    send_part(next, std::move(bytes), pledged);
  }
}

/// @param bytes nothing: they could not be encoded.
void round_engine::send_part(const transfer_state::outgoing_part& outgoing_part,
                             std::optional<payload> bytes, const digest& pledged) {
  if (reported_)
    return;
  if (!bytes)
    return perform(protocol_.give_up({ec::non_finite, "our vector cannot be encoded"}));
  pledge_part(outgoing_part.part, pledged);
  if (outgoing_part.owner == request_.self_index) {
    auto now = now_();
    transfers_.contribution(outgoing_part.part, request_.self_index, transfers_.view().number, now);
    marks_.contribution(request_.self_index, now, 0);
    return add(outgoing_part.part, request_.self_index, request_.weight, *std::move(bytes));
  }
  auto head = header(outgoing_part.part, wire::part_kind::contribution);
  head.weight = request_.weight;
  marks_.contribution(request_.self_index, now_(), 0);
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
  if (member != members_.end())
    heard_.insert(member->second);
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
  if (checked() && head.kind != wire::part_kind::result)
    return false; // we answer for these bytes until the round ends
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
  if (const auto* pledge = std::get_if<wire::round_pledge>(&event.what); pledge && !reported_)
    return on_pledge(member->second, event, *pledge);
  event.release();
  on_message(member->second, event.what);
}

void round_engine::refuse(std::size_t member, ec reason) {
  port_->count_refused(reason);
  suspect(member, reason);
}

void round_engine::suspect(std::size_t member, ec reason) {
  seen_.emplace(member, reason);
  watch_.fault(now_());
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
  heard_.insert(from);
  if (head.kind == wire::part_kind::repair)
    return on_repair(from, event, head);
  if (head.kind == wire::part_kind::evidence)
    return on_evidence(from, event, head);
  if (!fits(head, event.body.size)) {
    event.release();
    return refuse(from, ec::wrong_shape);
  }
  bool in_place = result_.is_place(head.index, event.body.data.get());
  if (is_settled() && head.kind == wire::part_kind::result
      && head.view <= transfers_.view().number) {
    if (in_place)
      result_.returned(head.index);
    return event.release();
  }
  auto now = now_();
  auto said = head.kind == wire::part_kind::contribution
                ? transfers_.contribution(head.index, from, head.view, now)
                : transfers_.result(head.index, from, head.contributors, head.view, now);
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
    accept(from, event.body, head, now);
  event.release();
  if (said == verdict::refuse)
    refuse(from, ec::protocol_violation);
}

void round_engine::accept(std::size_t from, const payload& body, const wire::part& head,
                          steady_time now) {
  bytes_received_ += body.size;
  port_->count_part();
  if (head.kind == wire::part_kind::contribution) {
    marks_.contribution(from, now, body.size);
    return add(head.index, from, head.weight, body);
  }
  marks_.result(from, now, body.size);
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
  if (!values || !learn_weights(from, head)) {
    transfers_.forget_result(head.index);
    return refuse(from, values ? ec::bad_weight : ec::non_finite);
  }
  result_.put(head.index, std::move(values));
  collect();
}

/// A reducer reports the weights that it summed with, the same for all of its parts.
bool round_engine::learn_weights(std::size_t reducer, const wire::part& head) {
  double sum = 0;
  for (auto weight : head.weights)
    sum += weight;
  if (head.weights.size() != transfers_.view().contributor_set().size() || sum != head.weight)
    return false;
  return reported_weights_.try_emplace(reducer, head.weights).first->second == head.weights;
}

// -- parts that we reduce -------------------------------------------------------------------------

void round_engine::add(std::uint32_t index, std::size_t member, double weight, payload values) {
  // A member has one weight in a round.
  if (told_[member] && *told_[member] != weight)
    return refuse(member, ec::bad_weight);
  auto contribution = checked() ? contribution_digest(weight, values.view()) : digest{};
  auto added = own_.add(index, member, weight, std::move(values));
  if (added) {
    if (checked())
      received_[index].emplace(member, contribution);
    told_[member] = weight;
    return reduce_if_complete(index);
  }
  if (member == request_.self_index) // checked before the round began
    return perform(protocol_.give_up({added.error().code, "our own contribution was refused"}));
  refuse(member, added.error().code);
}

void round_engine::reduce_if_complete(std::uint32_t index) {
  if (reported_ || is_settled())
    return;
  auto due = own_.due(index);
  if (!due)
    return;
  const auto& part = transfers_.parts()[index];
  const auto& contributions = own_.reducer(index);
  auto out = result_.memory_for_sum(index);
  if (part.count >= config_.offload_elements
      && port_->reduce({index, part.count, *due, contributions, out}))
    return;
  take_sum({index, *due, contributions.reduce(*due, {out.get(), part.count}), out});
}

/// What is sent for a sum, and the values that the other members decode from it, in its place.
payload round_engine::encode_sum(std::uint32_t index, const part_reducer& contributions,
                                 member_set over, const std::shared_ptr<float>& out) const {
  const auto& part = transfers_.parts()[index];
  payload bytes{
    std::shared_ptr<const std::byte>{out, reinterpret_cast<const std::byte*>(out.get())},
    part.count * sizeof(float)};
  if (part.codec == codec_id::none)
    return bytes;
  auto same = contributions.unanimous(over);
  bytes = same ? *same : encoder_.encoded(part, {out.get(), part.count});
  auto decoded = decode(part.codec, bytes.view(), std::span{out.get(), part.count});
  WAGGLE_CHECK(decoded.ok(), "our own encoding does not decode");
  return bytes;
}

void round_engine::take_sum(const reduced_part& sum) {
  if (reported_ || is_settled())
    return;
  const auto& [index, over, outcome, out] = sum;
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
  auto now = now_();
  auto said = transfers_.result(index, request_.self_index, over.bits(), view.number, now);
  // We may have received this result from another reducer that was lost since; the other members
  // may not have.
  bool had = said == verdict::ignore;
  if ((said != verdict::accept && !had) || !own_.mark_sent(index, over.bits()))
    return;
  marks_.result(request_.self_index, now, 0);
  if (!had)
    result_.put(index, out);
  auto bytes = encode_sum(index, own_.reducer(index), over, out);
  auto head = header(index, wire::part_kind::result);
  head.weight = outcome.weight_sum;
  head.contributors = over.bits();
  head.weights = own_.reducer(index).weights(over);
  // Each reducer begins with the next member, so that the reducers do not all send to the same one
  // first.
  auto members = plan().members.size();
  for (std::size_t step = 1; step < members; ++step)
    if (auto member = (request_.self_index + step) % members;
        view.participant_set().contains(member))
      tell(member, head, bytes);
  reported_weights_.insert_or_assign(request_.self_index, head.weights);
  collect();
}

} // namespace waggle
