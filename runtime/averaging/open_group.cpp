// This file is long: every change of a group makes the plan of its next round, and must keep what
// the others know of it.

#include "runtime/averaging/open_group.hpp"

#include <algorithm>
#include <bit>

#include "runtime/averaging/round_protocol.hpp"
#include "runtime/core/byte_io.hpp"
#include "runtime/core/try.hpp"
#include "runtime/crypto/digest.hpp"

namespace waggle {

namespace {

round_id id_from(const digest& hash) {
  round_id id;
  std::copy_n(hash.bytes.begin(), round_id::size, id.bytes.begin());
  return id;
}

round_id following(const round_id& last, member_set stayed) {
  return id_from(sha256_stream{}
                   .add("waggle open group")
                   .add(last.view())
                   .add(little_endian(stayed.bits()))
                   .finish());
}

/// Distributes the plan's elements to the members in proportion to their shares, which are those of
/// another vector or of more members. The same on every machine. False: no member may reduce.
bool share_out(round_plan& plan) {
  double kept = 0;
  for (auto share : plan.shares)
    kept += static_cast<double>(share);
  if (kept == 0) {
    for (std::size_t i = 0; i < plan.members.size(); ++i)
      if (plan.members[i].mode != member_mode::client) {
        plan.shares[i] = plan.elements;
        return true;
      }
    return false;
  }
  // Rounds the borders between shares, not the shares: rounding down would move a value to the last
  // share whenever the vector changes, until that one has all.
  double before = 0;
  std::uint64_t begin = 0;
  for (auto& share : plan.shares) {
    before += static_cast<double>(share);
    auto end = static_cast<std::uint64_t>(before / kept * static_cast<double>(plan.elements) + 0.5);
    share = end - begin;
    begin = end;
  }
  return true;
}

void lead_by(round_plan& plan, std::ptrdiff_t first) {
  auto to_front = [&](auto& all) { std::rotate(all.begin(), all.begin() + first, all.end()); };
  plan.one_host = plan.one_host && first == 0; // another leader has to see for itself
  to_front(plan.members);
  to_front(plan.shares);
  to_front(plan.gathered);
}

/// Moves the first member that others can reach to the front. False: there is none.
bool lead_by_reachable(round_plan& plan) {
  auto leads = std::ranges::find_if(
    plan.members, [](const round_member& m) { return m.mode != member_mode::client; });
  if (leads == plan.members.end())
    return false;
  lead_by(plan, leads - plan.members.begin());
  return true;
}

template <class T>
void keep(std::vector<T>& all, member_set stayed) {
  std::vector<T> kept;
  for (std::size_t i = 0; i < all.size(); ++i)
    if (stayed.contains(i))
      kept.push_back(std::move(all[i]));
  all = std::move(kept);
}

/// Variable lengths stand before what they count, so that no two plans hash the same bytes.
void add_text(sha256_stream& to, std::string_view text) {
  to.add(little_endian(std::uint64_t{text.size()})).add(text);
}

} // namespace

round_id id_of_change(const round_id& replaced, const round_plan& plan) {
  sha256_stream stream;
  stream.add("waggle changed plan").add(replaced.view());
  add_text(stream, plan.prefix);
  stream.add(little_endian(plan.epoch.value()))
    .add(little_endian(plan.elements))
    .add(little_endian(plan.part_elements))
    .add(little_endian(plan.min_contributors))
    .add(little_endian(std::uint32_t{plan.one_host}));
  stream.add(little_endian(std::uint64_t{plan.members.size()}));
  for (const auto& member : plan.members)
    stream.add(member.peer.id.view()).add(little_endian(static_cast<std::uint32_t>(member.mode)));
  stream.add(little_endian(std::uint64_t{plan.shares.size()}));
  for (auto share : plan.shares)
    stream.add(little_endian(share));
  stream.add(little_endian(std::uint64_t{plan.gathered.size()}));
  for (const auto& text : plan.gathered)
    add_text(stream, text);
  for (const auto& run : plan.codecs)
    stream.add(little_endian(run.elements))
      .add(little_endian(static_cast<std::uint32_t>(run.codec)));
  stream.add(little_endian(static_cast<std::uint32_t>(plan.reduce_by.how)))
    .add(little_endian(plan.reduce_by.faulty_max))
    .add(little_endian(std::bit_cast<std::uint64_t>(plan.reduce_by.check_share)));
  return id_from(stream.finish());
}

bool may_admit(const peer_id& from, const round_plan& plan) {
  auto sender = position_of(from, plan);
  return sender == 0
         || (sender < plan.members.size() && plan.members[sender].mode == member_mode::client);
}

open_group::open_group(round_member self, terms shared, member_bandwidth bandwidth)
  : self_(std::move(self)), terms_(std::move(shared)) {
  bandwidths_.set(self_.peer.id, bandwidth);
}

void open_group::use(round_member self, terms shared, member_bandwidth bandwidth) {
  shared.end = terms_.end;
  auto called = called_;
  *this = open_group{std::move(self), std::move(shared), bandwidth};
  called_ = called;
}

std::size_t open_group::position() const {
  return position_of(self_.peer.id, *next_);
}

residual_range open_group::residual() const {
  residual_range out;
  for (std::size_t i = 0; i < terms_.vectors.size(); ++i) {
    if (i == turn())
      out.begin = out.of;
    out.of += elements_of(terms_.vectors[i]);
  }
  return out;
}

bool open_group::contains(const peer_id& peer) const {
  return next_ && waggle::is_member(peer, *next_);
}

void open_group::replace(round_plan plan) {
  next_ = std::move(plan);
  for (std::size_t i = 0; i < next_->members.size(); ++i)
    if (has_just_entered(next_->gathered[i]))
      lost_.erase(next_->members[i].peer.id);
}

void open_group::become(round_member self) {
  if (next_ && next_->members.size() > 1)
    return;
  self_ = std::move(self);
  if (next_)
    next_->members.front() = self_;
}

void open_group::found(epoch_id epoch, const digest& branch, const round_id& seed) {
  leave();
  branch_ = branch;
  auto& plan = next_.emplace();
  plan.id = seed;
  plan.prefix = terms_.prefix;
  plan.epoch = epoch;
  plan.members.push_back(self_);
  plan.gathered.emplace_back();
  plan.codecs = terms_.vectors[turn_of(epoch, 0)];
  plan.elements = elements_of(plan.codecs);
  plan.part_elements = terms_.partition.parts.largest;
  plan.reduce_by = terms_.reduce_by;
  plan.shares = {plan.elements};
  plan.min_contributors = terms_.min_contributors;
}

void open_group::adopt(const round_plan& plan, const partition_terms& agreed) {
  leave();
  branch_ = {};
  bandwidths_.assign(plan, agreed.bandwidths);
  terms_.partition = agreed;
  next_ = plan;
  for (auto& text : next_->gathered) // it would be read as a mark
    text.clear();
}

void open_group::leave() {
  next_.reset();
  round_ = 0;
  lost_.clear();
  early_.clear();
  waiting_.clear();
  auto own = bandwidths_.of(self_.peer.id);
  bandwidths_.clear();
  bandwidths_.set(self_.peer.id, own);
}

bool open_group::advance(member_set stayed) {
  auto plan = *next_;
  if (!keeps_majority(plan, stayed))
    branch_ = forked(branch_, plan.id);
  plan.id = following(plan.id, stayed);
  auto round = ends_epoch() ? 0 : round_ + 1;
  if (round == 0)
    plan.epoch = plan.epoch.next();
  bool other_vector = terms_.vectors.size() > 1;
  if (other_vector) {
    plan.codecs = terms_.vectors[turn_of(plan.epoch, round)];
    plan.elements = elements_of(plan.codecs);
  }
  bool smaller = stayed.size() < plan.members.size();
  if (smaller) {
    keep(plan.members, stayed);
    keep(plan.gathered, stayed);
    keep(plan.shares, stayed);
  }
  for (auto& text : plan.gathered)
    text.clear();
  plan.one_host = plan.one_host && stayed.contains(0); // likewise
  if (plan.members.size() == 1)
    plan.shares = {plan.elements};
  bool alone = plan.members.size() == 1; // does not depend on links to others
  if (plan.members.empty() || ((smaller || other_vector) && !alone && !share_out(plan))
      || (!alone && !lead_by_reachable(plan))) {
    leave();
    return false;
  }
  next_ = std::move(plan);
  std::erase_if(lost_, [this](const peer_id& peer) { return !contains(peer); });
  round_ = round;
  take_early();
  return true;
}

// -- the leader ----------------------------------------------------------------------------------

ec open_group::apply(const applicant& who) {
  if (!is_member())
    return ec::not_ready;
  bool takes_any = who.member.mode == member_mode::auxiliary && who.schema.is_zero();
  if (!takes_any && who.schema != terms_.schema)
    return ec::schema_mismatch;
  if (who.branch != branch_)
    return ec::wrong_run;
  if (!leads())
    return ec::not_a_leader;
  auto limit = std::min(terms_.members_max, round_members_max);
  bool counted = contains(who.member.peer.id) || waiting_.contains(who.member.peer.id);
  std::size_t coming = 0;
  for (const auto& [id, other] : waiting_)
    coming += contains(id) ? 0 : 1;
  if (!counted && next_->members.size() + coming >= limit && !make_room(who.host))
    return ec::group_full;
  waiting_.insert_or_assign(who.member.peer.id, who);
  return ec::none;
}

/// All places are taken, some by applicants. One of the host that has the most of these gives way
/// to one of `host` if that has fewer, also with it.
bool open_group::make_room(const std::string& host) {
  std::map<std::string, std::size_t> coming;
  for (const auto& [id, who] : waiting_)
    coming[who.host] += contains(id) ? 0 : 1;
  auto most = std::ranges::max_element(coming, {}, [](const auto& each) { return each.second; });
  if (most == coming.end() || most->second <= coming[host] + 1)
    return false;
  waiting_.erase(std::ranges::find_if(waiting_, [&](const auto& item) {
    return item.second.host == most->first && !contains(item.first);
  }));
  return true;
}

/// Takes the applicants that enter with the next plan: see admit().
std::vector<open_group::applicant> open_group::take_admitted() {
  auto is_new = [](const std::string& mark) { return mark == newcomer_mark; };
  auto newcomers = static_cast<std::size_t>(std::ranges::count_if(next_->gathered, is_new));
  auto known = next_->members.size() - newcomers;
  bool over = terms_.end.value() > 0 && next_->epoch >= terms_.end;
  auto room = known < 2 || over ? round_members_max : known - std::min(known, newcomers);
  // By the number of those of the same host before it.
  std::map<std::pair<std::size_t, peer_id>, applicant> by_turn;
  std::map<std::string, std::size_t> of_host;
  for (const auto& [id, who] : waiting_)
    by_turn.emplace(std::pair{contains(id) ? 0 : ++of_host[who.host], id}, who);
  std::vector<applicant> out;
  for (const auto& [turn, who] : by_turn) {
    bool enters_again = turn.first == 0;
    if (!enters_again && room == 0)
      break;
    room -= enters_again ? 0 : 1;
    waiting_.erase(turn.second);
    out.push_back(who);
  }
  return out;
}

std::optional<round_plan> open_group::admit() {
  if (!may_change_plan() || waiting_.empty())
    return std::nullopt;
  auto plan = *next_;
  auto admitted = take_admitted();
  if (admitted.empty())
    return std::nullopt;
  for (const auto& who : admitted) {
    const auto& id = who.member.peer.id;
    bandwidths_.set(id, who.bandwidth);
    auto known = position_of(id, plan);
    if (known < plan.members.size()) { // it was restarted before its loss was noticed
      plan.members[known] = who.member;
      auto& mark = plan.gathered[known];
      if (mark != newcomer_mark)
        mark = returned_mark;
      continue;
    }
    plan.members.push_back(who.member);
    plan.gathered.emplace_back(newcomer_mark);
    plan.shares.push_back(0);
  }
  if (!lead_by_reachable(plan) || !partition(plan))
    return std::nullopt;
  return change(std::move(plan));
}

std::optional<round_plan> open_group::on_bandwidth(const peer_id& who,
                                                   std::optional<double> bandwidth) {
  if (!may_change_plan() || !contains(who) || !bandwidths_.report(who, bandwidth))
    return std::nullopt;
  auto plan = *next_;
  if (bandwidth == 0.0)
    return partition(plan) && plan.shares != next_->shares ? std::optional{change(std::move(plan))}
                                                           : std::nullopt;
  auto better = bandwidths_.better(*next_, terms_.partition);
  if (!better)
    return std::nullopt;
  plan.shares = std::move(better->shares);
  if (terms_.vectors.size() == 1 || terms_.all_each_epoch) // else it is that of all
    plan.part_elements = better->part_elements;
  return change(std::move(plan));
}

std::optional<round_plan> open_group::on_one_host(bool one_host) {
  if (!may_change_plan() || next_->one_host == one_host)
    return std::nullopt;
  auto plan = *next_;
  plan.one_host = one_host;
  return change(std::move(plan));
}

bool open_group::hand_lead_to(const peer_id& who) {
  if (!may_change_plan())
    return false;
  auto plan = *next_;
  auto first = position_of(who, plan);
  if (first == 0 || first == plan.members.size() || plan.members[first].mode == member_mode::client
      || plan.gathered[first] == newcomer_mark || is_lost(who))
    return false;
  lead_by(plan, static_cast<std::ptrdiff_t>(first));
  (void)change(std::move(plan));
  return true;
}

/// False: no member may reduce. We do where all have bandwidth 0 because they leave soon.
bool open_group::partition(round_plan& plan) const {
  auto all = plan; // what its shares are for, and the size of its parts
  all.codecs.clear();
  for (const auto& vector : terms_.vectors)
    all.codecs.insert(all.codecs.end(), vector.begin(), vector.end());
  all.elements = elements_of(all.codecs);
  auto how = make_partition(all, bandwidths_.of(plan), terms_.partition.parts,
                            terms_.partition.min_vector_size);
  if (!how) {
    plan.shares.assign(plan.members.size(), 0);
    return terms_.partition.reduces && self_.mode != member_mode::client && share_out(plan);
  }
  plan.shares = std::move(how->shares);
  plan.part_elements = how->part_elements;
  return terms_.vectors.size() == 1 || share_out(plan);
}

// -- a member ------------------------------------------------------------------------------------

status open_group::check(const round_plan& plan) const {
  WAGGLE_TRY(valid, validate_plan(plan));
  auto broken = [](const char* why) {
    return failure{ec::protocol_violation, std::string{"plan: "} + why};
  };
  auto mine = position_of(self_.peer.id, plan);
  if (mine == plan.members.size() || plan.members[mine].mode != self_.mode)
    return broken("we are not one of its members");
  if (plan.shares[mine] != 0 && (!terms_.partition.reduces || self_.mode == member_mode::client))
    return broken("it has a share for us, but we never reduce");
  // A group that matchmaking formed may have auxiliaries beyond that number, but admits no more.
  if (plan.members.size() > std::max(terms_.members_max, next_ ? next_->members.size() : 0))
    return broken("the group is larger than agreed");
  if (plan.prefix != terms_.prefix || plan.codecs != terms_.vectors[turn_of(plan.epoch, 0)]
      || plan.reduce_by != terms_.reduce_by || plan.min_contributors != terms_.min_contributors
      || !may_be_part(plan.part_elements, plan.codecs, terms_.partition.parts))
    return failure{ec::schema_mismatch, "plan: it is for another vector"};
  return done{};
}

result<bool> open_group::on_plan(const peer_id& from, const round_id& replaces,
                                 const round_plan& plan) {
  WAGGLE_TRY(valid, check(plan));
  if (!next_)
    return failure{ec::protocol_violation, "plan: we are in no group"};
  if (plan.id == next_->id)
    return false; // received from another member already
  if (!contains(from))
    return failure{ec::protocol_violation, "plan: its sender is not in our group"};
  if (replaces != next_->id) {
    keep_early(from, replaces, plan);
    return false;
  }
  if (next_->members.front().peer.id != from || plan.epoch != next_->epoch)
    return failure{ec::protocol_violation, "plan: it was not sent by our group's leader"};
  if (round_ > 0)
    return failure{ec::protocol_violation, "plan: it changes the group within an epoch"};
  for (const auto& m : next_->members)
    if (!waggle::is_member(m.peer.id, plan))
      return failure{ec::protocol_violation, "plan: it leaves a member out"};
  replace(plan);
  take_early(); // the one that leads now may have been faster
  return true;
}

void open_group::keep_early(const peer_id& from, const round_id& replaces, const round_plan& plan) {
  auto of_sender = [&](const early_plan& kept) { return kept.from == from; };
  if (std::ranges::count_if(early_, of_sender) >= static_cast<std::ptrdiff_t>(early_plans_max))
    early_.erase(std::ranges::find_if(early_, of_sender));
  early_.push_back({from, replaces, plan});
}

void open_group::take_early() {
  auto next = early_.begin();
  auto is_next = [this](const early_plan& kept) {
    return kept.replaces == next_->id && kept.from == next_->members.front().peer.id;
  };
  while ((next = std::ranges::find_if(early_, is_next)) != early_.end()) {
    auto kept = std::move(*next);
    early_.erase(next);
    // An invalid plan concerns later messages of its leader, not this round.
    (void)on_plan(kept.from, kept.replaces, kept.plan);
  }
  std::erase_if(early_, [this](const early_plan& kept) { return !contains(kept.from); });
}

status open_group::enter(const peer_id& from, const round_plan& plan, const digest& branch) {
  if (!may_admit(from, plan))
    return failure{ec::protocol_violation, "plan: its first member did not send it"};
  WAGGLE_TRY(valid, check(plan));
  leave();
  branch_ = branch;
  next_ = plan;
  return done{};
}

} // namespace waggle
