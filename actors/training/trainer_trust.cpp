// Which claims of other peers a trainer believes, and what it does about those that it does not.

#include <algorithm>

#include "actors/guard.hpp"
#include "actors/training/trainer.hpp"
#include "runtime/core/epoch_limit.hpp"
#include "runtime/state/state_vote.hpp"

namespace waggle {

namespace {

constexpr auto doubt_log_interval = 60s;
/// A report of a member may be so many epochs newer than what we know of the others.
constexpr std::uint64_t epochs_of_news = 3;
/// Newcomers compare the states of several donors, which must be of one epoch. A donor waits for
/// an epoch that is so near, or reached in that time, for at most so long. Strangers ask for any.
constexpr std::uint64_t awaited_epochs_near = 16;
constexpr std::uint64_t awaited_epochs_max =
  std::uint64_t{1} << (2 * (state_vote::alignments_max - 1)); // what state_vote::align asks for
constexpr std::size_t awaited_states_max = 64;
constexpr auto awaited_for = 10s;

} // namespace

// -- histories ------------------------------------------------------------------------------------

/// Reports a history that more peers claim than train ours, and that is not believed.
void trainer::note_doubts(const history_choice& choice) {
  bool same = doubted_.has_value() == choice.doubted.has_value()
              && (!doubted_ || doubted_->branch == choice.doubted->branch);
  bool fewer = doubted_ && choice.doubted && choice.doubted->supporters < doubted_->supporters;
  doubted_ = choice.doubted;
  if (!doubted_) {
    doubt_notice_.clear();
  } else if (!same || fewer || doubt_notice_.empty()
             || now() - doubt_logged_ >= doubt_log_interval) {
    doubt_notice_ = fmt::format(
      "{} peers, {} among them, claim history {}, which is not believed: this peer has "
      "completed rounds with {} of them. If they are yours, and began the run apart from "
      "these, stop all peers on one side, then start them: they enter the other",
      doubted_->supporters, short_name(doubted_->first), short_name(doubted_->branch),
      doubted_->known);
    if (!same || now() - doubt_logged_ >= doubt_log_interval) {
      doubt_logged_ = now();
      ctx_.log_caused("disbelieved histories", now(), spdlog::level::warn, doubt_notice_);
    }
  }
  show_doubts();
}

void trainer::show_doubts() {
  auto unknown = doubted_ ? doubted_->supporters - doubted_->known : 0;
  ctx_.metrics->set_disbelieved_peers(static_cast<double>(unknown + misleading_.count(now())
                                                          + claims_.suspects(now())
                                                          + donors_.refused(now()) + far_claims_));
}

void trainer::disbelieve(const std::string& what) {
  ctx_.metrics->count_refused_input(ec::protocol_violation);
  if (ctx_.log_caused("disbelieved claims", now(), spdlog::level::warn, what))
    ctx_.note(watch::remark{watch::remark::what::disbelieved, what});
  show_disbelief(what);
}

/// Also in the status, for a while.
void trainer::show_disbelief(const std::string& what) {
  disbelief_ = what;
  disbelief_at_ = now();
  show_doubts();
}

// -- epochs ---------------------------------------------------------------------------------------

/// Whether the epoch that the peer claims says how far our history is: anybody can claim any. A
/// peer that is in no group has nobody else to go by.
bool trainer::epoch_counts(const swarm_progress::peer& peer) const {
  if (peer.claim.group_size == 0 || peer.claim.past.branch != at_.past().branch)
    return false;
  const auto& in = group_.members;
  return place_ != place::member || known_.covers(peer.who.id)
         || std::find(in.begin(), in.end(), peer.who.id) != in.end();
}

/// Finds the epoch of our history, and peers that claim a later one.
void trainer::observe_epochs() {
  epoch_of_run_ = at_.epoch();
  if (config_.many_groups && place_ == place::member) // run_group has weighed the claims
    epoch_of_run_ = std::max(epoch_of_run_, group_.epoch);
  else
    for (const auto& peer : view_.peers)
      if (epoch_counts(peer))
        epoch_of_run_ = std::max(epoch_of_run_, peer.epoch);
  auto before = std::exchange(far_claims_, 0);
  const swarm_progress::peer* first = nullptr;
  for (const auto& peer : view_.peers)
    if (peer.who.id != ctx_.record.id && peer.claim.group_size > 0
        && peer.claim.past.branch == at_.past().branch
        && peer.epoch.value() > epoch_of_run_.value() + epochs_of_news) {
      ++far_claims_;
      first = first == nullptr ? &peer : first;
    }
  if (first != nullptr && before == 0)
    disbelieve(
      fmt::format("peer {} claims epoch {} of our history, of which no member of the group "
                  "has reached more than {}: it is not believed",
                  short_name(first->who.id), first->epoch.value(), epoch_of_run_.value()));
  else if (before != far_claims_)
    show_doubts();
}

/// In many groups: how many peers train our history, this one too unless it is an auxiliary. Of
/// those with which we have completed no round yet, only about as many count as of the others:
/// anybody can claim to train.
std::size_t trainer::peers_that_step() const {
  constexpr std::size_t unknown_min = 3; // when a run begins, nobody is known
  std::size_t known = 0;
  std::size_t unknown = 0;
  for (const auto& peer : view_.peers) {
    const auto& says = peer.claim;
    const auto& who = peer.who.id;
    if (who == ctx_.record.id || says.past.branch != at_.past().branch || says.group_size == 0
        || !says.ready || says.auxiliary || says.reduces_only)
      continue;
    if (known_.covers(who))
      ++known;
    else if (connected_.contains(who))
      ++unknown;
  }
  std::size_t own = config_.auxiliary ? 0 : 1;
  return own + known + std::min(unknown, known + unknown_min);
}

// -- groups ---------------------------------------------------------------------------------------

/// The reason why the group that admitted us is not that of the history which we wanted to enter.
std::optional<std::string> trainer::misled(const history_choice& choice,
                                           const group_view& group) const {
  if (config_.many_groups) // entering needs nobody's consent
    return std::nullopt;
  if (group.epoch.value() > epoch_max)
    return "its epoch is one that no run reaches";
  // Those that train the history are in its group, except for some that have just entered or left.
  std::size_t supporters = 0;
  std::size_t members = 0;
  bool known = std::any_of(view_.peers.begin(), view_.peers.end(), [&](const auto& peer) {
    return connected_.contains(peer.who.id) && peer.claim.group_size > 0
           && peer.claim.past.branch == choice.branch && known_.covers(peer.who.id);
  });
  for (const auto& peer : view_.peers) {
    const auto& who = peer.who.id;
    if (who == ctx_.record.id || !connected_.contains(who) || peer.claim.group_size == 0
        || peer.claim.past.branch != choice.branch || (known && !known_.covers(who)))
      continue;
    ++supporters;
    members += std::find(group.members.begin(), group.members.end(), who) != group.members.end();
  }
  if (2 * members >= supporters)
    return std::nullopt;
  return fmt::format("{} of the {} peers that train history {} are in it", members, supporters,
                     short_name(choice.branch));
}

void trainer::leave_misleading(const group_view& group, const std::string& why) {
  send(peers_.averager, quit_group{});
  const auto& leader = group.members.front();
  auto lasts = misleading_.add(leader, now());
  disbelieve(fmt::format("peer {} admitted us into a group that is not the run's ({}): it is not "
                         "asked for {:.0f} s",
                         short_name(leader), why, seconds_of(lasts)));
}

// -- samples --------------------------------------------------------------------------------------

/// Whether a round's weight is the samples of its contributors, so that claims can be checked.
bool trainer::claims_are_due() const {
  return averages().what == lane_content::gradient
         && averages().due.counts == lane_clock::unit::swarm_samples;
}

void trainer::observe_claims() {
  if (place_ != place::member || round_runs() || !claims_are_due())
    return;
  for (const auto& peer : view_.peers)
    if (counts_here(peer))
      claims_.observe(peer.who.id, peer.samples);
}

/// Compares what the others claimed before the round with what it delivered.
void trainer::check_deliveries(const round_report& report, const contribution& given) {
  if (report.outcome != round_outcome::complete || !given.from_state || !claims_are_due())
    return;
  auto found = claims_.end_round(report.participants, report.weight_sum, given.samples, now());
  for (const auto& who : found.suspects)
    disbelieve(fmt::format("peer {} claimed samples and did not contribute them ({} were missing "
                           "from the round): what it claims does not count for a while",
                           short_name(who), found.missing));
}

// -- states ---------------------------------------------------------------------------------------

/// The peers that can give the state of our group's history: members of the group, if there are
/// any, those that we know first.
std::vector<peer_record> trainer::donors() const {
  std::vector<const swarm_progress::peer*> holders;
  for (const auto& peer : view_.peers)
    if (peer.who.id != ctx_.record.id && peer.claim.ready && peer.claim.group_size > 0
        && peer.claim.past.branch == at_.past().branch
        && (!peer.who.client_mode || connected_.contains(peer.who.id)))
      holders.push_back(&peer);
  auto keep_if_any = [&](auto preferred) {
    if (std::any_of(holders.begin(), holders.end(), preferred))
      std::erase_if(holders, [&](const auto* peer) { return !preferred(peer); });
  };
  const auto& in = group_.members;
  keep_if_any(
    [&](const auto* peer) { return std::find(in.begin(), in.end(), peer->who.id) != in.end(); });
  keep_if_any([](const auto* peer) { return !peer->claim.auxiliary; }); // they pass on old states
  if (config_.many_groups) // whose optimizers make no steps
    keep_if_any([](const auto* peer) { return !peer->claim.reduces_only; });
  keep_if_any([this](const auto* peer) { return merges_.averaging().contains(peer->who.id); });
  std::stable_partition(holders.begin(), holders.end(),
                        [this](const auto* peer) { return known_.covers(peer->who.id); });
  std::vector<peer_record> out;
  for (const auto* peer : holders)
    out.push_back(peer->who);
  return out;
}

/// Whether the request is for an epoch that our group is about to reach.
bool trainer::awaits(const get_state_snapshot& wanted) const {
  if (!exact() || place_ != place::member || !at_.in_step() || wanted.branch != at_.past().branch
      || wanted.epoch_min <= at_.epoch() || awaited_states_.size() >= awaited_states_max)
    return false;
  auto ahead = wanted.epoch_min.value() - at_.epoch().value();
  return ahead <= awaited_epochs_near
         || (ahead <= awaited_epochs_max
             && static_cast<double>(ahead) * epoch_seconds_ <= seconds_of(awaited_for));
}

caf::result<state_snapshot> trainer::await_epoch(const get_state_snapshot& wanted) {
  auto promise = make_response_promise<state_snapshot>();
  awaited_states_.push_back({wanted, now() + awaited_for, promise});
  return promise;
}

/// Answers the requests for an epoch that has been reached, or that cannot be reached any more. To
/// be called at each epoch, so that all donors give the state of the same one.
void trainer::give_awaited() {
  for (auto& request : std::exchange(awaited_states_, {})) {
    const auto& wanted = request.wanted;
    bool here =
      place_ == place::member && at_.in_step() && !stopping_ && wanted.branch == at_.past().branch;
    if (!here || now() >= request.until) {
      request.promise.deliver(to_caf(ec::epoch_mismatch, "this peer's state is older"));
    } else if (wanted.epoch_min > at_.epoch()) {
      awaited_states_.push_back(std::move(request));
    } else {
      merge();
      // The snapshot is made behind the running pass, however long that lasts: the donor that asks
      // has the deadline.
      request.promise.delegate(worker_, wanted);
    }
  }
}

} // namespace waggle
