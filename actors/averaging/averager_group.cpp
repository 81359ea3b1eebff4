// With a group_averager: the groups that the averager finds go on as open groups.

#include <algorithm>

#include "actors/averaging/averager.hpp"
#include "actors/caf_error.hpp"

namespace waggle {

namespace {

constexpr auto question_timeout = 2s; // to an actor of this process

} // namespace

/// Whether the group of a step with this request may grow.
bool averager::admits(const average_vector& what) {
  return what.reuse_group && what.expected_peers == 0 && what.gather.empty();
}

bool averager::keeps_group(const average_vector& what, const codec_plan& codecs) const {
  auto members = kept_.members.size();
  bool enough = what.expected_peers == 0 ? members > 1 : members == what.expected_peers;
  return kept_.member && may_keep_ && enough && what.reuse_group && what.gather.empty()
         && codecs == kept_codecs_;
}

/// As the last member: leaves the group if others search in vain because it is full. One of them
/// enters instead, or forms another group with us; without that, a peer that comes later than the
/// group would never have one. The other members go on, whoever asks.
void averager::make_room_or_stay() {
  request(matchmaker_, question_timeout, is_place_wanted{})
    .then(while_searching<bool>([this](bool wanted) { wanted ? search() : stay(); }),
          while_searching<caf::error>([this](const caf::error&) { stay(); }));
}

void averager::stay() {
  auto& step = *current_;
  if (!step.triggered && time_left() == 0ms) // step_expired came while we asked
    return cancel({ec::timeout, "the step was not triggered before its deadline"});
  step.kept_group = true;
  step.stage = step_stage::awaiting_trigger;
  step.tell_stage();
  if (step.triggered)
    start_round();
}

/// The group that matchmaking formed.
void averager::adopt() {
  const auto& step = *current_;
  send(group_, adopt_group{*step.plan, step.terms});
  may_keep_ = !step.others_left;
  kept_codecs_ = step.codecs;
  group_view begun{true, step.plan->epoch, {}, {}, step.elements};
  for (const auto& member : step.plan->members)
    begun.members.push_back(member.peer.id);
  set_group(std::move(begun));
}

/// The group of other peers that matchmaking found.
void averager::enter(const peer_record& leader) {
  auto& step = *current_;
  if (!config_.auxiliary) // an auxiliary takes the vector of any group
    send(group_, describe_vector{step.elements, step.what.tensors});
  // A leader that accepts us and never admits us must leave time to search for other peers.
  auto patience = time_left() / 4;
  request(group_, patience + 2s, enter_group{{leader}, {}, patience})
    .then(while_searching<group_view>([this](const group_view& entered) {
            on_search_over();
            may_keep_ = true;
            kept_codecs_ = current_->codecs;
            set_group(entered);
            current_->stage = step_stage::awaiting_trigger;
            current_->tell_stage();
            if (current_->triggered)
              start_round();
          }),
          while_searching<caf::error>([this](const caf::error&) {
            ++current_->not_admitted;
            search();
          }));
}

void averager::run_in_group() {
  const auto& step = *current_;
  auto left = time_left();
  average_in_group what{step.what.values, step.what.weight, kept_.epoch, false, left,
                        step.what.deltas};
  auto is_ours = [this, generation = steps_] { return current_ && steps_ == generation; };
  request(group_, left + 10s, std::move(what))
    .then(
      [this, is_ours](const group_round& ended) {
        if (is_ours())
          on_group_round(ended);
      },
      [this, is_ours](const caf::error& why) {
        if (!is_ours())
          return;
        leave_open_group();
        group_round ended;
        ended.report.why = from_caf(why);
        on_group_round(std::move(ended));
      });
}

void averager::on_group_round(group_round ended) {
  const auto& step = *current_;
  set_group(std::move(ended.group));
  avoided_ = std::move(ended.avoided);
  auto& report = ended.report;
  // Others may search while these members, who admit peers and refer to their group, average no
  // more. The first time, they may only have been busy.
  bool entered = !step.plan && !step.kept_group;
  if (entered && report.outcome == round_outcome::failed && step.failures > 0) {
    for (const auto& fault : report.faults)
      if (kind_of(fault.reason) == fault_kind::silent)
        avoided_.push_back(fault.peer);
    std::sort(avoided_.begin(), avoided_.end());
  }
  if (const auto& plan = step.plan; plan && plan->id == report.round)
    for (auto& [peer, text] : report.gathered)
      if (auto at = position_of(peer, *plan); at < plan->members.size())
        text = plan->gathered[at];
  on_report(std::move(report));
}

/// Lets the matchmaker refer peers that search to the group's leader.
void averager::set_group(group_view now) {
  kept_ = std::move(now);
  set_open_group open;
  if (kept_.member && may_keep_ && current_ && admits(current_->what))
    open = {kept_.members.front(), kept_.members.size(), kept_codecs_};
  std::pair now_open{open.leader, open.members};
  if (std::exchange(open_, now_open) != now_open)
    send(matchmaker_, std::move(open));
}

/// Also stops entering one.
void averager::leave_open_group() {
  if (!group_)
    return;
  send(group_, quit_group{});
  set_group({});
}

} // namespace waggle
