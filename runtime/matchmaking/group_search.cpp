// This file is long: it is one state machine, whose states all handlers share.

#include "runtime/matchmaking/group_search.hpp"

#include <algorithm>
#include <tuple>

namespace waggle {

namespace {

// Bounds the memory that a crowded key, or a peer that floods it, can use.
constexpr std::size_t candidates_max = 1024;

// Peers' clocks are expected to agree within this.
constexpr auto clock_skew_max = 3s;

} // namespace

group_search::group_search(seeker self, options opts, steady_time deadline, random_source random)
  : self_(std::move(self)), options_(opts), deadline_(deadline), random_(random) {
  options_.members_max = std::max(options_.members_max, options_.target_group_size);
}

std::size_t group_search::size() const {
  auto counts = [](const auto& follower) { return !follower.second.extra; };
  auto others = std::count_if(followers_.begin(), followers_.end(), counts);
  return static_cast<std::size_t>(others) + (self_.extra ? 0 : 1);
}

bool group_search::has_room_for(const seeker& asker) const {
  if (!asker.extra)
    return size() < options_.target_group_size;
  return extra_followers() < options_.target_group_size
         && followers_.size() + 1 < options_.members_max;
}

bool group_search::complete() const {
  return size() >= options_.target_group_size
         || (options_.expected_peers != 0 && size() >= options_.expected_peers
             && size() >= options_.min_group_size);
}

group_search::actions group_search::start(moment now) {
  actions out;
  started_ = true;
  began_ = now.steady;
  redeclare(out, now);
  if (complete()) { // a group of one was asked for
    begin_group(out);
    return out;
  }
  ask_next(out, now);
  return out;
}

steady_time::duration group_search::wait_max(moment now) const {
  auto left = std::max(deadline_ - now.steady, steady_time::duration{0});
  return std::min<steady_time::duration>(options_.min_matchmaking_time, left);
}

void group_search::redeclare(actions& out, moment now) {
  expiration_ = now.swarm + wait_max(now);
  if (!self_.never_leads())
    out.push_back(declare{expiration_});
  looked_up_ = now.steady;
  out.push_back(look_up{});
}

void group_search::candidate(const peer_record& peer, std::optional<swarm_time> expiration) {
  if (peer.id == self_.record.id || peer.client_mode)
    return;
  auto found = known_.find(peer.id);
  if (found == known_.end()) {
    if (known_.size() < candidates_max)
      known_.emplace(peer.id, known_peer{peer, expiration, {}, {}, false, ec::none});
    return;
  }
  if (!peer.addresses.empty())
    found->second.record = peer;
  if (expiration && found->second.expiration != expiration) {
    found->second.expiration = expiration;
    found->second.again.reset(); // it declared again: its earlier answer is out of date
    if (found->second.hopeless == ec::wrong_group_key)
      found->second.hopeless.reset(); // it moved into our bucket
  }
}

// -- asking --------------------------------------------------------------------------------------

void group_search::send_ask(actions& out, const peer_record& to, moment now) {
  asking_ = to;
  asked_ = now.steady;
  disbanded_ = false;
  // Who never leads declares nothing, and uses the largest expiration: it ranks behind its leader.
  auto expiration = self_.never_leads() ? swarm_time::max() : expiration_;
  out.push_back(ask{to, expiration});
}

void group_search::ask_next(actions& out, moment now) {
  if (done_ || asking_ || leader_)
    return;
  if (suggested_) {
    auto to = *std::exchange(suggested_, std::nullopt);
    return send_ask(out, to, now);
  }
  if (const auto* best = next_candidate(now, false))
    send_ask(out, best->record, now);
}

/// The peer to ask next; null: none. `must_lead`: only one that is known to rank before us.
const group_search::known_peer* group_search::next_candidate(moment now, bool must_lead) const {
  const known_peer* best = nullptr;
  auto comes_before = [this](const known_peer& a, const known_peer& b) {
    // Peers that are known to have declared come first, the one that leads before the others; then
    // by id. An extra auxiliary asks all in turn.
    auto key = [this](const known_peer& p) {
      auto again = self_.extra ? p.again.value_or(steady_time{}) : steady_time{};
      return std::tuple{p.expiration.value_or(swarm_time::max()), again, p.record.id};
    };
    return key(a) < key(b);
  };
  for (const auto& [id, peer] : known_) {
    if (peer.hopeless || (peer.again && now.steady < *peer.again) || followers_.count(id) > 0)
      continue;
    if (must_lead && !peer.expiration)
      continue;
    if (peer.expiration && *peer.expiration < now.swarm)
      continue; // its search is over
    if (!self_.never_leads() && peer.expiration && own_rank() < rank{*peer.expiration, id})
      continue; // it will ask us
    if (best == nullptr || comes_before(peer, *best))
      best = &peer;
  }
  return best;
}

bool group_search::has_answer_to_wait_for(moment now) const {
  return asking_ && size() == 2 && now.steady - completed_ < options_.answer_wait;
}

group_search::actions group_search::on_answer(const peer_id& from, ec code,
                                              const std::optional<peer_record>& suggested,
                                              moment now) {
  actions out;
  if (done_ || !asking_ || asking_->id != from) {
    if (code == ec::none && !done_ && !(leader_ && leader_->id == from)) {
      // Too late: we have moved on. It must not count on us.
      peer_record leader{.id = from};
      out.push_back(leave{leader});
    }
    return out;
  }
  auto peer = *std::exchange(asking_, std::nullopt);
  bool accepted = code == ec::none || code == ec::duplicate_peer;
  if (accepted && disbanded_)
    code = ec::group_disbanded;
  else if (accepted) {
    leader_ = peer;
    if (auto known = known_.find(peer.id); known != known_.end())
      note(known->second, ec::none);
    if (self_.never_leads()) // its leader may have begun its search at any time until now
      expiration_ = now.swarm + wait_max(now);
    give_up_followers(out, leader_);
    return out;
  }
  if (accepted || code == ec::timeout) // it may count on us
    out.push_back(leave{peer});
  if (!known_.contains(peer.id)) // a hint named it
    candidate(peer, std::nullopt);
  if (auto known = known_.find(peer.id); known != known_.end())
    note_refusal(known->second, code, now);
  // The smallest peer leads, so a hint can only name a peer that is smaller than its sender.
  if (code == ec::not_a_leader && suggested && suggested->id != self_.record.id)
    suggested_ = suggested;
  if (!complete()) {
    ask_next(out, now);
    return out;
  }
  if (const auto* leader = next_candidate(now, true)) {
    send_ask(out, leader->record, now);
    if (has_answer_to_wait_for(now))
      return out;
  }
  begin_group(out);
  return out;
}

void group_search::note_refusal(known_peer& peer, ec code, moment now) {
  note(peer, code);
  auto pause = options_.retry / 2
               + milliseconds{static_cast<std::int64_t>(
                 random_.below(static_cast<std::uint64_t>(options_.retry.count()) + 1))};
  switch (code) {
    case ec::schema_mismatch:
    case ec::wrong_group_key:
    case ec::protocol_violation:
      peer.hopeless = code;
      break;
    case ec::timeout:
    case ec::unreachable:
    case ec::peer_lost:
    case ec::clock_skew:
    case ec::excluded:
      pause *= 10;
      break;
    case ec::bad_expiration:
      pause *= 5;
      break; // it knows us now and will ask
    default:
      break;
  }
  peer.again = now.steady + pause;
}

// -- being asked ---------------------------------------------------------------------------------

group_search::join_answer group_search::on_join(const seeker& asker, swarm_time expiration,
                                                moment now) {
  // The first check that fails determines the code; the order of the checks is part of the
  // protocol.
  if (done_ || !started_)
    return {ec::not_looking, {}, {}};
  if (self_.client)
    return {ec::protocol_violation, {}, {}};
  if (self_.extra && asker.extra)
    return {ec::not_a_leader, {}, {}};
  const auto& id = asker.record.id;
  // A peer that asks is still searching, so its expiration is in the future by its own clock.
  if (!asker.never_leads() && expiration + clock_skew_max + options_.request_timeout < now.swarm)
    return {ec::clock_skew, {}, {}};
  if (self_.extra || (own_rank() > rank{expiration, id} && !asker.never_leads())) {
    actions out;
    candidate(asker.record, expiration);
    ask_next(out, now);
    return {ec::bad_expiration, {}, std::move(out)};
  }
  if (leader_)
    return {ec::not_a_leader, leader_, {}};
  if (id == self_.record.id || followers_.count(id) > 0)
    return {ec::duplicate_peer, {}, {}};
  if (!has_room_for(asker))
    return {ec::group_full, {}, {}};
  join_answer answer;
  if (followers_.size() + 1 >= options_.members_max)
    drop_extra(answer.then); // a member comes first
  followers_.emplace(id, asker);
  largest_group_ = std::max(largest_group_, size());
  // If we have asked a peer and it accepts, our followers are redirected to it.
  if (complete() && !asker.extra) {
    completed_ = now.steady;
    if (!has_answer_to_wait_for(now))
      begin_group(answer.then);
  }
  return answer;
}

void group_search::give_up_followers(actions& out, const std::optional<peer_record>& suggested) {
  if (followers_.empty())
    return;
  out.push_back(disband{take_followers(), suggested});
}

/// One of the extra auxiliaries has to look for another group.
void group_search::drop_extra(actions& out) {
  auto found = std::find_if(followers_.begin(), followers_.end(),
                            [](const auto& follower) { return follower.second.extra; });
  if (found == followers_.end())
    return;
  out.push_back(disband{{found->second.record}, std::nullopt});
  followers_.erase(found);
}

void group_search::begin_group(actions& out) {
  done_ = true;
  while (extra_followers() > size())
    drop_extra(out);
  if (asking_) // it may have accepted us
    out.push_back(leave{*std::exchange(asking_, std::nullopt)});
  begin group;
  for (const auto& [id, follower] : followers_)
    group.followers.push_back(follower);
  random_.shuffle(group.followers);
  if (!self_.never_leads())
    out.push_back(withdraw{});
  out.push_back(std::move(group));
}

// -- following -----------------------------------------------------------------------------------

bool group_search::on_begin(const peer_id& from) {
  // The message that the group begins may overtake the answer that accepted us.
  bool follows = leader_ ? leader_->id == from : asking_ && asking_->id == from;
  if (done_ || !follows)
    return false;
  done_ = true;
  return true;
}

std::vector<peer_record> group_search::take_followers() {
  std::vector<peer_record> all;
  for (const auto& [id, follower] : followers_)
    all.push_back(follower.record);
  followers_.clear();
  return all;
}

group_search::actions group_search::on_disband(const peer_id& from,
                                               const std::optional<peer_record>& suggested,
                                               moment now) {
  actions out;
  if (done_)
    return out;
  if (asking_ && asking_->id == from) {
    // The message that the group disbanded may overtake the answer that accepted us.
    disbanded_ = true;
    if (suggested && suggested->id != self_.record.id)
      suggested_ = suggested;
    return out;
  }
  if (!leader_ || leader_->id != from)
    return out;
  leader_.reset();
  if (suggested && suggested->id != self_.record.id)
    suggested_ = suggested;
  ask_next(out, now);
  return out;
}

group_search::actions group_search::on_lost(const peer_id& peer, moment now) {
  actions out;
  if (done_)
    return out;
  followers_.erase(peer);
  if (auto known = known_.find(peer); known != known_.end())
    known->second.again = now.steady + 10 * options_.retry;
  if (leader_ && leader_->id == peer) {
    leader_.reset();
    ask_next(out, now);
  }
  return out;
}

// -- time ----------------------------------------------------------------------------------------

group_search::actions group_search::on_time(moment now) {
  actions out;
  if (done_ || !started_)
    return out;
  if (asking_ && now.steady - asked_ > options_.request_timeout + 1s) {
    // The network layer should have answered by now; do not wait forever.
    auto peer = asking_->id;
    auto more = on_answer(peer, ec::timeout, std::nullopt, now);
    out.insert(out.end(), more.begin(), more.end());
    if (done_)
      return out;
  }
  if (!leader_ && complete() && asking_ && !has_answer_to_wait_for(now)) {
    begin_group(out);
    return out;
  }
  bool expired = now.swarm >= expiration_;
  if (leader_ && now.swarm >= expiration_ + options_.request_timeout) {
    // Its expiration was before ours, so its decision is overdue.
    out.push_back(leave{*leader_});
    if (auto known = known_.find(leader_->id); known != known_.end()) {
      note(known->second, ec::timeout);
      known->second.again = now.steady + 10 * options_.retry;
    }
    leader_.reset();
  }
  if (!leader_ && expired && size() >= options_.min_group_size && !self_.never_leads()
      && (!followers_.empty() || options_.min_group_size == 1)) {
    begin_group(out);
    return out;
  }
  bool alone = options_.alone_after > 0ms && now.steady - began_ >= options_.alone_after
               && known_.empty() && followers_.empty() && turned_away_.empty();
  if (now.steady >= deadline_ || alone) {
    auto more = cancel(reason(now));
    out.insert(out.end(), more.begin(), more.end());
    return out;
  }
  if (leader_)
    return out;
  if (expired) {
    give_up_followers(out, std::nullopt);
    redeclare(out, now);
  } else if (now.steady - looked_up_ >= options_.look_up_interval) {
    looked_up_ = now.steady;
    out.push_back(look_up{});
  }
  ask_next(out, now);
  return out;
}

group_search::actions group_search::cancel(failure why) {
  actions out;
  if (done_)
    return out;
  done_ = true;
  if (leader_)
    out.push_back(leave{*leader_});
  if (asking_)
    out.push_back(leave{*asking_});
  give_up_followers(out, std::nullopt);
  if (!self_.never_leads())
    out.push_back(withdraw{});
  out.push_back(failed{std::move(why)});
  return out;
}

// -- why there is no group ------------------------------------------------------------------------

void group_search::note(known_peer& peer, ec said) const {
  peer.asked = true;
  // A peer that was not searching yet may have begun later: that code does not replace another
  // answer.
  if (said != ec::not_looking || peer.said == ec::none)
    peer.said = said;
}

void group_search::turned_away(const peer_id& asker, ec why) {
  bool is_reason = why == ec::schema_mismatch || why == ec::wrong_group_key
                   || why == ec::epoch_mismatch || why == ec::clock_skew;
  if (!is_reason) // the other codes are normal steps on the way to a group
    return;
  if (turned_away_.size() < candidates_max || turned_away_.count(asker) > 0)
    turned_away_.insert_or_assign(asker, why);
}

std::string group_search::summary(moment now) const {
  std::map<ec, std::size_t> answers;
  std::size_t over = 0;
  std::size_t not_asked = 0;
  for (const auto& [id, peer] : known_) {
    if (peer.asked)
      ++answers[peer.said];
    else if (peer.expiration && *peer.expiration < now.swarm)
      ++over;
    else
      ++not_asked;
  }
  std::map<ec, std::size_t> away;
  for (const auto& [id, why] : turned_away_)
    ++away[why];
  auto number = [](std::size_t n) { return std::to_string(n); };
  auto name = [](ec code) { return " (" + std::string{to_string(code)} + ")"; };
  auto text = number(known_.size()) + (known_.size() == 1 ? " candidate seen" : " candidates seen");
  const std::map<ec, std::string> without_answer{{ec::none, " took us in but never began"},
                                                 {ec::timeout, " silent"},
                                                 {ec::unreachable, " unreachable"},
                                                 {ec::peer_lost, " lost"}};
  for (const auto& [code, count] : answers) {
    auto known = without_answer.find(code);
    text += ", " + number(count)
            + (known != without_answer.end() ? known->second : " refused" + name(code));
  }
  if (not_asked > 0)
    text += ", " + number(not_asked) + " not asked";
  if (over > 0)
    text += ", " + number(over) + " whose search was over";
  for (const auto& [code, count] : away)
    text += ", " + number(count) + " turned away" + name(code);
  if (largest_group_ > 1)
    text += ", at most " + number(largest_group_) + " of " + number(options_.min_group_size)
            + " together";
  return text;
}

namespace {

/// What the operator can do about it.
std::string_view advice(ec code) {
  static const std::map<ec, std::string_view> known{
    {ec::nobody_declared, "are other peers running, and known here?"},
    {ec::schema_mismatch, "start all peers with the same model, codecs and group options"},
    {ec::epoch_mismatch, "the others are at another epoch"},
    {ec::wrong_group_key, "the others have other group bits"},
    {ec::clock_skew, "set the clocks of all machines"},
    {ec::unreachable, "can their addresses be reached from here?"},
    {ec::timeout, "raise the request timeout if they are far away"}};
  auto found = known.find(code);
  return found != known.end() ? found->second
                              : "wait for more peers, or lower the minimum group size";
}

} // namespace

failure group_search::reason(moment now) const {
  std::set<ec> codes;
  for (const auto& [id, peer] : known_)
    if (peer.asked && peer.said != ec::none)
      codes.insert(peer.said);
  for (const auto& [id, why] : turned_away_)
    codes.insert(why);
  // A peer that was not searching at first may have begun later.
  codes.erase(ec::not_looking);
  auto code = codes.count(ec::timeout) > 0
                ? ec::timeout // that peer may have been the only one missing
                : ec::too_few;
  if (known_.empty() && largest_group_ == 1 && turned_away_.empty())
    code = ec::nobody_declared;
  else if (codes.size() == 1)
    for (auto decisive : {ec::schema_mismatch, ec::epoch_mismatch, ec::wrong_group_key,
                          ec::clock_skew, ec::unreachable})
      if (codes.count(decisive) > 0)
        code = decisive;
  auto tenths = std::chrono::duration_cast<milliseconds>(now.steady - began_).count() / 100;
  return {code, "could not find a group in " + std::to_string(tenths / 10) + "."
                  + std::to_string(tenths % 10) + " s: " + summary(now) + "; "
                  + std::string{advice(code)}};
}

} // namespace waggle
