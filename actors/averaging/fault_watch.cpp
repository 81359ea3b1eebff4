#include "actors/averaging/fault_watch.hpp"

#include <algorithm>
#include <utility>

#include <spdlog/logger.h>

#include "runtime/averaging/group_majority.hpp"
#include "runtime/core/log_about.hpp"

namespace waggle {

void fault_watch::begin_round(const round_plan& plan, bool open_group) {
  lost_.clear();
  members_.clear();
  leads_ = plan.members.front().peer.id == ctx_.record.id;
  newcomers_.clear();
  slow_.clear();
  if (open_group)
    for (const auto& peer : patience_.slow())
      if (peer != ctx_.record.id)
        slow_.insert(peer);
  for (std::size_t i = 0; i < plan.members.size(); ++i) {
    members_.emplace(plan.members[i].peer.id, plan.members[i]);
    if (open_group && plan.gathered[i] == newcomer_mark)
      newcomers_.insert(plan.members[i].peer.id);
  }
}

member_set fault_watch::slow_in(const round_plan& plan) const {
  member_set out;
  for (std::size_t i = 0; i < plan.members.size(); ++i)
    if (slow_.contains(plan.members[i].peer.id))
      out.insert(i);
  return out;
}

void fault_watch::learn_patience(const round_report& report) {
  auto waits = waits_in(report);
  if (waits.empty())
    return;
  auto before = std::exchange(began_, report.marks->began);
  if (before)
    patience_.add(waits, seconds_of(*began_ - *before));
}

void fault_watch::on_disconnected(const peer_disconnected& msg, steady_time now) {
  if (members_.contains(msg.peer))
    lost_.insert(msg.peer);
  // The whole host was silent, not the member in the round.
  if (msg.why.code == ec::timeout)
    memory_.retract_silence(msg.peer, now);
}

bool fault_watch::may_blame_silence(const round_report& report) const {
  auto silent = static_cast<std::size_t>(
    std::count_if(report.faults.begin(), report.faults.end(), [this](const auto& fault) {
      return kind_of(fault.reason) == fault_kind::silent && !newcomers_.contains(fault.peer);
    }));
  return report.why.code != ec::excluded && 2 * silent < members_.size() - newcomers_.size();
}

void fault_watch::on_round(const round_report& report, steady_time now) {
  tell_unlinked(report);
  learn_patience(report);
  bool failed = report.outcome == round_outcome::failed;
  bool blames_silence = may_blame_silence(report);
  const auto& stayed = report.participants;
  for (const auto& [peer, reason, seen, left] : report.faults) {
    bool departed = left && !failed; // if the round failed here, others end it, too
    auto kind = departed ? fault_kind::left : kind_of(reason);
    bool silent = kind == fault_kind::silent;
    if (silent && slow_.contains(peer))
      kind = fault_kind::slow;
    if ((!seen && !departed) || (silent && (!blames_silence || lost_.contains(peer)))
        || std::find(stayed.begin(), stayed.end(), peer) != stayed.end())
      continue;
    auto excluded = memory_.add(peer, kind, now);
    if (!excluded)
      continue;
    ctx_.metrics->count_exclusion(to_string(excluded->kind));
    ctx_.note(watch::excluded{peer, report.round, std::string{to_string(reason)}});
    log_about about{
      {.epoch = report.epoch, .round = report.round, .remote = peer, .reason = reason}};
    ctx_.log_caused("excluded members", now, spdlog::level::warn,
                    fmt::format("peer {} stays out of our groups for {:.0f} s: {} in round {}",
                                short_name(peer), seconds_of(excluded->lasts),
                                departed ? "it left again"
                                : kind == fault_kind::slow
                                  ? "it kept most rounds waiting, and was late again"
                                  : to_string(reason),
                                short_name(report.round)));
  }
  if (!failed)
    for (const auto& peer : stayed)
      memory_.completed_with(peer, now);
  judge_newcomers(report, now);
}

ec fault_watch::refuses(const peer_id& peer, const std::string& host, std::size_t group_size,
                        steady_time now) const {
  if (auto fault = memory_.excluded_for(peer, group_size, now); fault != fault_kind::none)
    return fault == fault_kind::slow ? ec::stalled : ec::excluded;
  bool admitted = ctx_.rounds->has_averaged_with(peer) || hosts_.admits(host, now);
  return admitted ? ec::none : ec::excluded;
}

void fault_watch::accepted(const peer_id& peer, const std::string& host) {
  if (!ctx_.rounds->has_averaged_with(peer))
    hosts_.accepted(peer, host);
}

/// Whoever contributed is no newcomer any more, whoever was silent may have other names.
void fault_watch::judge_newcomers(const round_report& report, steady_time now) {
  for (const auto& fault : report.faults)
    if (fault.seen && kind_of(fault.reason) == fault_kind::silent)
      if (auto paused = hosts_.silent(fault.peer, now)) {
        log_about about{{.round = report.round, .remote = fault.peer, .reason = fault.reason}};
        ctx_.log_caused("silent newcomers", now, spdlog::level::warn,
                        fmt::format("newcomer {} was silent in its first round: no peers that we "
                                    "do not know are admitted from {} for {:.0f} s",
                                    short_name(fault.peer), paused->host,
                                    seconds_of(paused->lasts)));
      }
  for (const auto& peer : report.contributors)
    hosts_.forget(peer);
}

/// A leader has let its members in over a link, and must not become a client: somebody reduces. Of
/// two members without a link, one may find that the round went on without it before it gives the
/// other one up.
void fault_watch::tell_unlinked(const round_report& report) const {
  if (!ctx_.unlinked || leads_)
    return;
  std::set<peer_id> silent;
  for (const auto& fault : report.faults)
    if (fault.seen && kind_of(fault.reason) == fault_kind::silent)
      silent.insert(fault.peer);
  for (const auto& [peer, member] : members_) {
    if (peer == ctx_.record.id || lost_.contains(peer) || ctx_.links->find(peer))
      continue;
    bool needs_link = !ctx_.reach->as_client() || member.mode == member_mode::node;
    bool stalled = needs_link && (silent.contains(peer) || report.why.code == ec::excluded);
    if (stalled || ctx_.reach->as_client())
      ctx_.unlinked(member.peer, stalled);
  }
}

void fault_watch::show(std::size_t group_size, steady_time now) const {
  ctx_.metrics->set_excluded_peers(std::string_view{kind_},
                                   static_cast<double>(memory_.excluded(group_size, now).size()));
}

} // namespace waggle
