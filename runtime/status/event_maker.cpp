#include "runtime/status/event_maker.hpp"

#include <algorithm>
#include <cmath>

namespace waggle {

namespace {

constexpr auto epoch_interval = 1s;

bool is_routine(trainer_phase x) {
  return x == trainer_phase::training || x == trainer_phase::averaging;
}

/// Their numbers change with each epoch.
bool same_matters(const std::vector<notice>& a, const std::vector<notice>& b) {
  return std::ranges::equal(a, b, {}, &notice::matter, &notice::matter);
}

} // namespace

event_maker::events event_maker::on_status(const training_status& now_is, steady_time now) {
  using what = watch::remark::what;
  events out;
  auto note = [&out](what type, std::string text) {
    out.push_back(watch::remark{type, std::move(text)});
  };
  bool first = !last_;
  auto before = last_.value_or(training_status{});
  last_ = now_is;
  if (now_is.phase != before.phase && !(is_routine(now_is.phase) && is_routine(before.phase)))
    out.push_back(watch::phase_changed{std::string{to_string(before.phase)},
                                       std::string{to_string(now_is.phase)}, now_is.waiting_for});
  bool forked = !before.past.branch.is_zero() && !now_is.past.branch.is_zero()
                && now_is.past.branch != before.past.branch;
  if (forked)
    note(what::history, "this peer goes on in history " + short_name(now_is.past.branch)
                          + " instead of " + short_name(before.past.branch));
  if (now_is.provisional != before.provisional)
    note(what::split, now_is.provisional ? "cut off from most of the group, going on without it"
                                         : "not cut off any more");
  if (now_is.histories != before.histories && std::max(now_is.histories, before.histories) > 1)
    note(what::split, "live peers train " + std::to_string(now_is.histories)
                        + (now_is.histories == 1 ? " history again" : " histories"));
  if (!same_matters(now_is.notices, before.notices))
    note(what::notice, now_is.notices.empty() ? "no notice any more" : text_of(now_is.notices));
  bool incomparable = first || now_is.epoch < told_epoch_ || forked;
  if (!incomparable && (now_is.epoch == told_epoch_ || now - epoch_told_ < epoch_interval))
    return out;
  if (!incomparable) {
    watch::epochs_ended ended;
    ended.epoch = now_is.epoch.value();
    ended.epochs = now_is.epoch.value() - told_epoch_.value();
    ended.samples = now_is.samples_used - std::min(told_samples_, now_is.samples_used);
    if (std::isfinite(now_is.loss) && now_is.steps > 0)
      ended.loss = now_is.loss;
    ended.duration_s = seconds_of(now - epoch_told_) / static_cast<double>(ended.epochs);
    out.push_back(ended);
  }
  told_epoch_ = now_is.epoch;
  told_samples_ = now_is.samples_used;
  epoch_told_ = now;
  return out;
}

bool event_maker::may_tell_of_link(steady_time now) {
  if (now - link_second_ >= 1s) {
    link_second_ = now;
    links_told_ = 0;
  }
  if (links_told_ >= links_per_second_max) {
    ++links_left_out_;
    return false;
  }
  ++links_told_;
  return true;
}

event_maker::events event_maker::on_connected(const peer_record& peer, const std::string& link,
                                              steady_time now) {
  auto [known, is_new] = connected_.try_emplace(peer.id, presence{now, {}});
  known->second.addresses = peer.addresses;
  if (auto before = std::ranges::find(left_, peer.id, &departure::peer); before != left_.end())
    before->back = true;
  if (!is_new || !may_tell_of_link(now))
    return {};
  return {watch::peer_joined{peer.id,
                             peer.addresses.empty() ? "" : to_string(peer.addresses.front()),
                             peer.client_mode ? "client" : "", link}};
}

event_maker::events event_maker::on_disconnected(const peer_id& peer, const failure& why,
                                                 steady_time now, swarm_time wall) {
  auto since = connected_.find(peer);
  if (since == connected_.end())
    return {};
  bool ordered = why.code == ec::shutting_down;
  watch::peer_left left{peer, to_string(why), seconds_of(now - since->second.since), ordered,
                        std::string{to_string(why.code)}};
  departure last{peer,    left.reason, left.code, wall, now, std::move(since->second.addresses),
                 !ordered};
  if (auto before = std::ranges::find(left_, peer, &departure::peer); before != left_.end()) {
    last.times = before->times + 1;
    left_.erase(before);
  }
  left_.push_front(std::move(last));
  connected_.erase(since);
  if (left_.size() > departures_max)
    left_.pop_back();
  if (!may_tell_of_link(now))
    return {};
  return {left};
}

event_maker::events event_maker::on_slow(const slow_report& found) {
  events out;
  std::map<peer_id, slow_peer> now_slow;
  for (const auto& each : found.peers) {
    auto known = slow_.find(each.peer);
    if (known == slow_.end() || known->second.cause != each.cause)
      out.push_back(
        watch::slow{each.peer, std::string{to_string(each.cause)}, each.text, each.number});
    now_slow.emplace(each.peer, each);
  }
  for (const auto& [peer, was] : slow_)
    if (!now_slow.contains(peer))
      out.push_back(watch::slow{peer, {}, "it is not slow any more", std::nullopt});
  slow_ = std::move(now_slow);
  return out;
}

event_maker::events event_maker::on_refused(std::span<const std::uint64_t> counts,
                                            steady_time now) {
  refused_.resize(counts.size());
  std::uint64_t sum = 0;
  std::uint64_t most = 0;
  std::size_t code = 0;
  for (std::size_t i = 0; i < counts.size(); ++i) {
    auto fresh = counts[i] - refused_[i];
    sum += fresh;
    if (fresh > most) {
      most = fresh;
      code = i;
    }
  }
  events out;
  if (sum > 0 && (code != refused_code_ || now - refused_told_ >= refused_interval)) {
    out.push_back(
      watch::refused{sum, std::string{to_string(ec_from_wire(static_cast<std::uint32_t>(code)))}});
    refused_.assign(counts.begin(), counts.end());
    refused_code_ = code;
    refused_told_ = now;
  }
  if (links_left_out_ > 0 && (!left_out_told_ || now - *left_out_told_ >= refused_interval)) {
    out.push_back(watch::refused{std::exchange(links_left_out_, 0),
                                 "too many links that begin and end: not listed"});
    left_out_told_ = now;
  }
  return out;
}

std::vector<departure> event_maker::departures(steady_time now) const {
  std::vector<departure> out{left_.begin(), left_.end()};
  for (auto& each : out)
    each.recent = now - each.when < departures_recent;
  return out;
}

} // namespace waggle
