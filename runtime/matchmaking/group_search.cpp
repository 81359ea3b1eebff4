#include "runtime/matchmaking/group_search.hpp"

#include <algorithm>

namespace waggle {

namespace {

// Bounds what a crowded key, or somebody who floods it, can make us remember.
constexpr std::size_t candidates_max = 1024;

} // namespace

group_search::group_search(seeker self, options opts, steady_time deadline, random_source random)
  : self_(std::move(self)), options_(opts), deadline_(deadline), random_(random) {}

bool group_search::complete() const {
  auto size = followers_.size() + 1;
  return size >= options_.target_group_size
         || (options_.expected_peers != 0 && size >= options_.expected_peers
             && size >= options_.min_group_size);
}

group_search::actions group_search::start(moment now) {
  actions out;
  started_ = true;
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
  if (!self_.client)
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
      known_.emplace(peer.id, known_peer{peer, expiration, {}, false});
    return;
  }
  if (!peer.addresses.empty())
    found->second.record = peer;
  if (expiration && found->second.expiration != expiration) {
    found->second.expiration = expiration;
    found->second.again.reset(); // it declared anew: what it said before is out of date
  }
}

// -- asking --------------------------------------------------------------------------------------

void group_search::send_ask(actions& out, const peer_record& to, moment now) {
  asking_ = to;
  asked_ = now.steady;
  disbanded_ = false;
  // A client declares nothing, so it waits longer than anybody: it never comes before its leader.
  auto expiration = self_.client ? swarm_time::max() : expiration_;
  out.push_back(ask{to, expiration});
}

void group_search::ask_next(actions& out, moment now) {
  if (done_ || asking_ || leader_)
    return;
  if (suggested_) {
    auto to = *std::exchange(suggested_, std::nullopt);
    return send_ask(out, to, now);
  }
  const known_peer* best = nullptr;
  auto comes_before = [](const known_peer& a, const known_peer& b) {
    // Those of whom we know that they declared come first, the smallest leads; then by id.
    auto key = [](const known_peer& p) {
      return std::pair{rank{p.expiration.value_or(swarm_time::max()), p.record.id}, 0};
    };
    return key(a) < key(b);
  };
  for (const auto& [id, peer] : known_) {
    if (peer.hopeless || (peer.again && now.steady < *peer.again) || followers_.count(id) > 0)
      continue;
    if (peer.expiration && *peer.expiration < now.swarm)
      continue; // over
    if (!self_.client && peer.expiration && own_rank() < rank{*peer.expiration, id})
      continue; // it will ask us
    if (best == nullptr || comes_before(peer, *best))
      best = &peer;
  }
  if (best != nullptr)
    send_ask(out, best->record, now);
}

group_search::actions group_search::on_answer(const peer_id& from, ec code,
                                              const std::optional<peer_record>& suggested,
                                              moment now) {
  actions out;
  if (done_ || !asking_ || asking_->id != from) {
    if (code == ec::none && !done_ && !(leader_ && leader_->id == from)) {
      // Too late: we went on. It must not count on us.
      peer_record leader;
      leader.id = from;
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
    if (self_.client) // its leader may have begun to search at any time up to now
      expiration_ = now.swarm + wait_max(now);
    give_up_followers(out, leader_);
    return out;
  }
  if (accepted || code == ec::timeout) // it may count on us
    out.push_back(leave{peer});
  ++refusals_[code];
  auto [entry, added] = known_.try_emplace(peer.id, known_peer{peer, {}, {}, false});
  auto& known = entry->second;
  auto pause = options_.retry / 2
               + milliseconds{static_cast<std::int64_t>(
                 random_.below(static_cast<std::uint64_t>(options_.retry.count()) + 1))};
  switch (code) {
    case ec::schema_mismatch:
    case ec::wrong_group_key:
    case ec::protocol_violation:
      known.hopeless = true;
      break;
    case ec::timeout:
    case ec::unreachable:
    case ec::peer_lost:
      pause *= 10;
      break;
    case ec::bad_expiration:
      pause *= 5;
      break; // it knows of us now and will ask
    default:
      break;
  }
  known.again = now.steady + pause;
  // The smallest leads, so a hint can only name a peer that is smaller than the one who gave it.
  if (code == ec::not_a_leader && suggested && suggested->id != self_.record.id)
    suggested_ = suggested;
  ask_next(out, now);
  return out;
}

// -- being asked ---------------------------------------------------------------------------------

group_search::join_answer group_search::on_join(const seeker& asker, swarm_time expiration,
                                                moment now) {
  // The order of the checks is that of spec/averaging.md §3.4.
  if (done_ || !started_)
    return {ec::not_looking, {}, {}};
  if (self_.client)
    return {ec::protocol_violation, {}, {}};
  const auto& id = asker.record.id;
  if (own_rank() > rank{expiration, id} && !asker.client) {
    actions out;
    candidate(asker.record, expiration);
    ask_next(out, now);
    return {ec::bad_expiration, {}, std::move(out)};
  }
  if (leader_)
    return {ec::not_a_leader, leader_, {}};
  if (id == self_.record.id || followers_.count(id) > 0)
    return {ec::duplicate_peer, {}, {}};
  if (followers_.size() + 1 >= options_.target_group_size)
    return {ec::group_full, {}, {}};
  followers_.emplace(id, asker);
  join_answer answer;
  // If we asked a peer meanwhile and it accepts, we hand our followers on to it.
  if (complete())
    begin_group(answer.then);
  return answer;
}

void group_search::give_up_followers(actions& out, const std::optional<peer_record>& suggested) {
  if (followers_.empty())
    return;
  out.push_back(disband{take_followers(), suggested});
}

void group_search::begin_group(actions& out) {
  done_ = true;
  if (asking_) // it may have accepted us
    out.push_back(leave{*std::exchange(asking_, std::nullopt)});
  begin group;
  for (const auto& [id, follower] : followers_)
    group.followers.push_back(follower);
  random_.shuffle(group.followers);
  if (!self_.client)
    out.push_back(withdraw{});
  out.push_back(std::move(group));
}

// -- following -----------------------------------------------------------------------------------

bool group_search::on_begin(const peer_id& from) {
  // The word that the group begins may overtake the word that it took us.
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
    // The word that the group is over may overtake the word that it took us.
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
    // The network layer owes us an answer by now; never wait for it for ever.
    auto peer = asking_->id;
    auto more = on_answer(peer, ec::timeout, std::nullopt, now);
    out.insert(out.end(), more.begin(), more.end());
  }
  bool expired = now.swarm >= expiration_;
  if (leader_ && now.swarm >= expiration_ + options_.request_timeout) {
    // Its expiration was before ours, so the verdict is overdue.
    out.push_back(leave{*leader_});
    ++refusals_[ec::timeout];
    if (auto known = known_.find(leader_->id); known != known_.end())
      known->second.again = now.steady + 10 * options_.retry;
    leader_.reset();
  }
  if (!leader_ && expired && followers_.size() + 1 >= options_.min_group_size && !self_.client
      && (!followers_.empty() || options_.min_group_size == 1)) {
    begin_group(out);
    return out;
  }
  if (now.steady >= deadline_) {
    auto more = cancel(reason());
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
  if (!self_.client)
    out.push_back(withdraw{});
  out.push_back(failed{std::move(why)});
  return out;
}

failure group_search::reason() const {
  std::string detail = std::to_string(known_.size()) + " candidates";
  for (const auto& [code, count] : refusals_)
    detail += ", " + std::to_string(count) + " × " + std::string{to_string(code)};
  // Whoever was not looking at first may have begun later; what it said then counts.
  auto said = refusals_.size() - refusals_.count(ec::not_looking);
  auto only = [&](ec code) { return said == 1 && refusals_.count(code) == 1; };
  if (known_.empty() && followers_.empty())
    return {ec::nobody_declared, detail};
  for (auto code : {ec::schema_mismatch, ec::epoch_mismatch, ec::unreachable})
    if (only(code))
      return {code, detail};
  // Somebody who never answered may have been all that was missing.
  return {refusals_.count(ec::timeout) > 0 ? ec::timeout : ec::too_few, detail};
}

} // namespace waggle
