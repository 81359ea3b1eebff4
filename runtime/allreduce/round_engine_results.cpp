// What follows when the result is complete: the members agree that they hold the same.
//
//   small result ─ digest ──────────────────────────────────────► round_protocol ─► prepared
//   large result ─ our share of the key ─► shares of all ─ digest ┘
//   digests differ ─► compare: all tell what they hold ─► judge ─► a reducer is at fault: suspect it
//                                                              └► most agree: the leader proposes that
//   adopted, and we hold something else ─► ask_for_repair ─► the leader sends what differs ─► prepared

#include "runtime/allreduce/adopted_result.hpp"
#include "runtime/allreduce/round_engine.hpp"

namespace waggle {

result_terms round_engine::terms() const {
  return {plan().id, transfers_.view().contributors, weight_sum_.value_or(0)};
}

part_values round_engine::values() const {
  return [this](std::uint32_t part) {
    return std::span{result_.values(part).get(), transfers_.parts()[part].count};
  };
}

const std::vector<digest>& round_engine::own_groups() {
  if (own_groups_.empty())
    for (std::size_t group = 0; group < groups_.size(); ++group)
      own_groups_.push_back(group_digest(terms(), groups_[group], values()));
  return own_groups_;
}

bool round_engine::keyed() const {
  return checked() || plan().elements * sizeof(float) > config_.keyless_bytes_max;
}

/// The members whose messages are awaited before the round can end.
member_set round_engine::silent() const {
  const auto& view = transfers_.view();
  member_set only_leader;
  only_leader.insert(protocol_.leader());
  bool leads = protocol_.coordinator() == request_.self_index;
  if (repair_)
    return repair_->asked();
  if (repairing_)
    return only_leader;
  if (comparing_ && !judged_) {
    member_set out;
    view.participant_set().for_each([&](std::size_t member) {
      if (!lists_.has(member, view.number) && !protocol_.lost().contains(member))
        out.insert(member);
    });
    return leads ? out : only_leader;
  }
  if (checks_this_view() && !digest_ && shared_ != view.number)
    return leads ? pledges_.missing(view) : only_leader;
  if (shared_ == view.number && !digest_ && !shares_.missing(view).empty())
    return leads ? shares_.missing(view) : only_leader;
  if (checks_this_view() && !digest_) {
    auto otherwise = comparing_pledges_ ? pledged_otherwise() : member_set{};
    return leads ? otherwise | unchecked() : only_leader;
  }
  return protocol_.awaited();
}

// -- preparing ------------------------------------------------------------------------------------

/// The result may have become complete.
void round_engine::collect() {
  if (reported_ || !transfers_.complete() || protocol_.ended() || digest_ || is_settled())
    return;
  watch_.advanced(now_());
  if (!weights_agree() || reported_)
    return;
  if (!keyed())
    return hold(result_digest(terms(), own_groups()));
  const auto& view = transfers_.view();
  if (shared_ == view.number)
    return prepare();
  if (checks_this_view() && (!pledges_.missing(view).empty() || !own_parts_agree() || reported_))
    return;
  shared_ = view.number;
  auto self = request_.self_index;
  auto share = port_->secret(plan().id, view.number);
  auto pledged = checks_this_view() ? pledges_.of(view) : digest{};
  shares_.add(self, view.number, share);
  send_to(view.participant_set(),
          wire::round_key_share{plan().id, view.number, static_cast<std::uint32_t>(self), share,
                                pledged});
  prepare();
}

/// All parts must be sums over the same weights: those that the contributors told us, if we reduce
/// a part. If a reducer reports another weight of one member, that member told it another; if of
/// several or of us, the reducer lies.
bool round_engine::weights_agree() {
  auto contributors = transfers_.view().contributor_set();
  auto known = told_;
  known[request_.self_index] = request_.weight;
  member_set at_fault;
  // Of members that have told us nothing: what most reducers report.
  std::size_t position = 0;
  contributors.for_each([&](std::size_t member) {
    if (!known[member]) {
      std::map<double, std::size_t> reports;
      for (const auto& [reducer, reported] : reported_weights_)
        ++reports[reported[position]];
      for (const auto& [weight, count] : reports)
        if (2 * count > reported_weights_.size())
          known[member] = weight;
      if (!known[member])
        at_fault.insert(member);
    }
    ++position;
  });
  weight_sum_ = 0;
  for (const auto& [reducer, reported] : reported_weights_) {
    member_set differ;
    auto weight = reported.begin();
    contributors.for_each([&](std::size_t member) {
      if (known[member] && *known[member] != *weight)
        differ.insert(member);
      ++weight;
    });
    if (differ.empty() || reducer == request_.self_index)
      continue;
    bool one = differ.size() == 1 && !differ.contains(request_.self_index);
    at_fault.insert(one ? differ.lowest() : reducer);
  }
  contributors.for_each([&](std::size_t member) { *weight_sum_ += known[member].value_or(0); });
  at_fault.for_each([&](std::size_t member) {
    if (!reported_)
      refuse(member, ec::bad_weight);
  });
  return at_fault.empty();
}

void round_engine::on_share(std::size_t from, const wire::round_key_share& what) {
  const auto& members = plan().members;
  if (what.member >= members.size() || what.view > view_number_max)
    return refuse(from, ec::protocol_violation);
  bool corrects = what.member != from && from == protocol_.leader()
                  && what.view == transfers_.view().number && checks_this_view()
                  && pledges_.opens(plan().id, transfers_.view(), what.member, what.share);
  if (corrects)
    shares_.correct(what.member, what.view, what.share);
  else if (!may_say(from, what.member, what.view)) {
    // What a leader told us of an earlier view is late.
    if (from == leader_of(what.view, members.size()) && checked())
      return;
    return refuse(from, ec::protocol_violation);
  }
  shares_.add(what.member, what.view, what.share);
  auto [said, first] =
    said_pledges_.try_emplace(what.member, said_pledges{what.view, what.pledges});
  if (!first && said->second.view < what.view)
    said->second = {what.view, what.pledges};
  if (what.member == from && members[from].mode == member_mode::client
      && protocol_.leader() == request_.self_index && what.view == transfers_.view().number)
    send_to(clients_besides(from), what);
  prepare();
}

/// Clients have no links with each other: the leader passes on what they say before the round is
/// decided.
bool round_engine::may_say(std::size_t from, std::size_t of, std::uint32_t view) const {
  const auto& members = plan().members;
  return of == from
         || (from == leader_of(view, members.size()) && members[of].mode == member_mode::client);
}

member_set round_engine::clients_besides(std::size_t member) const {
  member_set clients;
  transfers_.view().participant_set().for_each([&](std::size_t other) {
    if (other != member && plan().members[other].mode == member_mode::client)
      clients.insert(other);
  });
  return clients;
}

/// Once all participants hold the result, its key is known.
void round_engine::prepare() {
  const auto& view = transfers_.view();
  auto number = view.number;
  if (reported_ || digest_ || !transfers_.complete() || shared_ != view.number
      || !shares_.missing(view).empty() || !sums_are_right() || reported_ || digest_
      || transfers_.view().number != number)
    return;
  hold(keyed_result_digest(terms(), shares_.of(view), groups_, values()));
}

void round_engine::hold(const digest& result) {
  digest_ = result;
  watch_.advanced(now_());
  perform(protocol_.on_result_complete(transfers_.view().number, result));
}

// -- comparing ------------------------------------------------------------------------------------

void round_engine::compare() {
  if (reported_ || !digest_)
    return;
  if (transfers_.view().adopted) { // its digest is settled: whoever reports another one lies
    auto view = transfers_.view();
    view.participant_set().for_each([&](std::size_t member) {
      auto said = protocol_.reported(member);
      if (!reported_ && said && *said != view.result)
        refuse(member, ec::protocol_violation);
    });
    return;
  }
  if (std::exchange(comparing_, true))
    return;
  watch_.advanced(now_());
  watch_.fault(now_());
  auto number = transfers_.view().number;
  port_->log("compares results: members hold different ones");
  lists_.add(request_.self_index, number, own_groups());
  send_to(transfers_.view().participant_set(),
          wire::round_digests{plan().id, number, own_groups()});
  judge();
}

void round_engine::on_digests(std::size_t from, const wire::round_digests& what) {
  if (what.groups.size() != groups_.size() || what.view > view_number_max)
    return refuse(from, ec::protocol_violation);
  lists_.add(from, what.view, what.groups);
  const auto& view = transfers_.view();
  if (is_settled())
    return on_settled_digests(from, what);
  bool awaits_lists = view.adopted && !judged_ && digest_ && *digest_ != view.result;
  if (awaits_lists && what.view < view.number
      && holds_what_most_listed(what.view, lists_, view, plan(), request_.self_index, terms())) {
    judged_ = true;
    return ask_for_repair();
  }
  if (what.view != view.number || !view.participant_set().contains(from))
    return;
  if (view.adopted)
    return send_repair(from);
  // Hashing takes long: not because of one member that asks for it.
  std::size_t listed = 0;
  bool differ = false;
  view.participant_set().for_each([&](std::size_t member) {
    auto said = protocol_.reported(member);
    differ = differ || (said && digest_ && *said != *digest_);
    listed += lists_.has(member, view.number) ? 1 : 0;
  });
  if (differ || listed > 1)
    compare();
  judge();
}

void round_engine::judge() {
  if (reported_ || !comparing_ || judged_)
    return;
  const auto& view = transfers_.view();
  member_set among;
  bool all = true;
  view.participant_set().for_each([&](std::size_t member) {
    if (lists_.has(member, view.number))
      among.insert(member);
    else if (!protocol_.lost().contains(member))
      all = false;
  });
  if (!all)
    return;
  judged_ = true;
  member_set liars; // what they list is not what they reported
  if (!keyed())
    among.for_each([&](std::size_t member) {
      auto reported = protocol_.reported(member);
      if (reported && *reported != result_digest(terms(), lists_.of(member, view.number)))
        liars.insert(member);
    });
  among = among - liars;
  auto found = lists_.judge(view.number, among, request_.self_index, [&](std::size_t group) {
    std::optional<std::size_t> reducer;
    for (auto part : groups_[group]) {
      auto owner = transfers_.parts().owner(part, view);
      if (reducer && *reducer != owner)
        return std::optional<std::size_t>{};
      reducer = owner;
    }
    return reducer;
  });
  (liars | found.at_fault).for_each([&](std::size_t member) {
    if (reported_ || member == request_.self_index)
      return;
    bool lies = liars.contains(member);
    port_->log(short_name(plan().members[member].peer.id)
               + (lies ? " reported another result than it holds"
                       : " sent different results to different members"));
    refuse(member, lies ? ec::protocol_violation : ec::unequal_results);
  });
  if (reported_ || !liars.empty() || !found.at_fault.empty())
    return;
  if (!found.we_hold_most && protocol_.rules().faulty == 0) {
    // Another member leads those that hold the same as most.
    if (protocol_.coordinator() == request_.self_index)
      perform(protocol_.give_up({ec::unequal_results, "most members hold another result"}));
    return;
  }
  auto plain = result_digest(terms(), own_groups());
  if (auto next = protocol_.on_most_agree(plain, now_()); !next.empty()) {
    if (protocol_.view().adopted)
      digest_ = plain;
    perform(next);
  }
}

// -- repairing ------------------------------------------------------------------------------------

void round_engine::ask_for_repair() {
  auto view = transfers_.view();
  if (reported_ || !view.adopted || protocol_.view().number != view.number)
    return; // a later view has begun
  if (is_settled())
    return ask_holders();
  // The same result may have been adopted under its digest without a key.
  if (auto plain = result_digest(terms(), own_groups()); plain == view.result && digest_ != plain) {
    digest_ = plain;
    watch_.advanced(now_());
    return perform(protocol_.on_same_result(view.number, plain));
  }
  // Whoever leads could put any bytes in the place of the result: only what most members listed
  // before is accepted. Some lists may still be on their way.
  if (!judged_)
    return;
  repairing_ = true;
  watch_.advanced(now_());
  tell(protocol_.leader(), wire::round_digests{plan().id, view.number, own_groups()});
}

/// A participant of the adopted view holds something else than we do.
void round_engine::send_repair(std::size_t to) {
  const auto& view = transfers_.view();
  if (reported_ || (protocol_.leader() != request_.self_index && !is_settled())
      || protocol_.reported(request_.self_index) != view.result || repaired_.contains(to)
      || !lists_.has(to, view.number))
    return;
  repaired_.insert(to);
  const auto& theirs = lists_.of(to, view.number);
  std::size_t differ = 0;
  if (is_settled())
    tell(to, wire::round_digests{plan().id, view.number, own_groups()});
  for (std::size_t group = 0; group < groups_.size(); ++group) {
    if (theirs[group] == own_groups()[group])
      continue;
    for (auto part : groups_[group]) {
      auto head = header(part, wire::part_kind::repair);
      head.contributors = view.contributors;
      if (is_settled())
        head.weight = weight_sum_.value_or(0);
      auto values = result_.values(part);
      payload bytes{
        std::shared_ptr<const std::byte>{values, reinterpret_cast<const std::byte*>(values.get())},
        head.count * sizeof(float)};
      tell(to, head, std::move(bytes));
      ++differ;
    }
  }
  port_->log("sends " + short_name(plan().members[to].peer.id) + " " + std::to_string(differ)
             + " parts again that differ from what most members hold");
}

/// The values are those that the leader holds, not encoded: decoding twice would not give the same.
void round_engine::on_repair(std::size_t from, const inbound_event& event, const wire::part& head) {
  const auto& parts = transfers_.parts();
  const auto& view = transfers_.view();
  bool fits = head.index < parts.size() && head.offset == parts[head.index].offset
              && head.count == parts[head.index].count
              && event.body.size == head.count * sizeof(float);
  if (fits && is_settled())
    return on_settled_part(from, event, head);
  if (!fits || from != leader_of(head.view, plan().members.size())) {
    event.release();
    return refuse(from, fits ? ec::protocol_violation : ec::wrong_shape);
  }
  if (!repairing_ || head.view != view.number || head.contributors != view.contributors)
    return event.release(); // late
  bytes_received_ += event.body.size;
  auto memory = std::make_shared<float_vector>(head.count);
  bool finite = copy_finite(event.body.view(), *memory);
  event.release();
  if (!finite)
    return refuse(from, ec::non_finite);
  result_.put(head.index, {memory, memory->data()});
  watch_.advanced(now_());
  auto group = groups_.group_of(head.index);
  own_groups_[group] = group_digest(terms(), groups_[group], values());
  if (auto now = result_digest(terms(), own_groups_); now == view.result) {
    repairing_ = false;
    hold(now);
  }
}

} // namespace waggle
