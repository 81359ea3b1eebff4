// average_vector ─► open group? ─ yes ──────────────────────────┬─► due? ─► average_in_group ─┬─► report
//                     └ no ─► find_group ─► formed, or entered ─┘                             │
//                 ▲                                                                           │
//                 └───────────────────────────────────────────── failed, and time is left ────┘

#include "actors/averaging/vector_averager.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>

#include "actors/guard.hpp"
#include "runtime/averaging/fault_memory.hpp"
#include "runtime/averaging/part_reducer.hpp"

namespace waggle {

namespace {

/// After so many open groups did not admit us, a step searches for peers that search, too.
constexpr int groups_tried_max = 3;
constexpr auto question_timeout = 2s; // to an actor of this process
/// A group for a time is found so long before it: clocks differ, and messages take time.
constexpr auto found_before = 500ms;
constexpr auto gather_max = std::chrono::minutes{9}; // declarations live for ten
/// So long after the time, a member begins its round although the leader has not called it.
constexpr auto leader_late_max = 1s;

std::string in_seconds(std::chrono::nanoseconds time) {
  char text[32];
  std::snprintf(text, sizeof text, "%.1f s", seconds_of(time));
  return text;
}

failure not_finite() {
  return {ec::non_finite, "the vector holds NaN or infinite values"};
}

/// Checks a caller's request, but not its values; ec::none: it is valid.
/// @param auxiliary the peer reduces only, and needs no vector of its own.
failure check_request(const average_vector& what, bool auxiliary, swarm_time now) {
  auto elements = what.values ? what.values->size() : what.elements;
  if (elements == 0)
    return {ec::wrong_shape, "there is nothing to average"};
  if (what.values && what.elements != 0 && what.elements != elements)
    return {ec::wrong_shape, "the vector does not have `elements` values"};
  if (!what.values && !auxiliary && !what.triggered)
    return {ec::wrong_shape, "values are missing"};
  if (elements > plan_elements_max)
    return {ec::oversize, "the vector has more values than a round may have"};
  if (!is_weight(what.weight))
    return {ec::bad_weight, "a weight must be 0, or finite and positive"};
  if (!std::isfinite(what.alpha))
    return {ec::bad_config, "alpha must be finite"};
  if (what.gather.size() > gather_bytes_max)
    return {ec::oversize, "gather has " + std::to_string(what.gather.size())
                            + " bytes: it may have at most " + std::to_string(gather_bytes_max)};
  if (what.begin && *what.begin <= now)
    return {ec::bad_config,
            "scheduled_time is in the past, by " + in_seconds(difference(now, *what.begin))};
  if (what.begin && waggle::difference(*what.begin, now) >= what.deadline)
    return {ec::bad_config, "scheduled_time is in "
                              + in_seconds(waggle::difference(*what.begin, now))
                              + ", after the timeout of " + in_seconds(what.deadline)};
  return {};
}

} // namespace

vector_averager::vector_averager(caf::actor_config& cfg, node_context ctx, averaging_config config,
                                 matchmaker_actor matchmaker, kept_group_actor group)
  : vector_averager_base(cfg), ctx_(std::move(ctx)), config_(std::move(config)),
    matchmaker_(std::move(matchmaker)), group_(std::move(group)) {
  end_on_exception(this, ctx_);
}

void vector_averager::on_exit() {
  if (current_) // whoever waits learns it now, and not at its deadline
    current_->promise.deliver(to_caf(ec::shutting_down, "the averager has ended"));
  current_.reset();
  matchmaker_ = nullptr;
  group_ = nullptr;
}

vector_averager::behavior_type vector_averager::make_behavior() {
  return {
    [this](average_vector& msg) { return begin(msg); },
    [this](const trigger_step& msg) { trigger(msg); },
    [this](const cancel_step& msg) { cancel(msg); },
    [](const group_view&) { /* each round says it */ },
    [this](const round_called& msg) {
      if (!current_ || !current_->has_group || msg.epoch != kept_.epoch)
        return;
      current_->called = true;
      run_when_due();
    },
    [this](const step_due& msg) {
      if (current_ && current_->has_group && msg.step == steps_)
        run_when_due();
    },
  };
}

bool vector_averager::step::is_finite() {
  known_finite = known_finite || !what.values || all_finite(*what.values);
  return known_finite;
}

// -- one step -----------------------------------------------------------------------------------

caf::result<round_report> vector_averager::begin(average_vector& msg) {
  if (auto wrong = check_request(msg, config_.auxiliary, ctx_.wall->now()); wrong.code != ec::none)
    return to_caf(wrong);
  if (current_)
    return to_caf(ec::overloaded, "this averager has a step that runs: wait for it, or cancel it");
  auto elements = msg.values ? msg.values->size() : msg.elements;
  std::array<tensor_info, 1> whole{{{"0", elements, config_.role}}};
  auto codecs =
    msg.codecs.empty() ? plan_codecs(config_.codec, whole) : result<codec_plan>{msg.codecs};
  if (!codecs)
    return to_caf(codecs.error());
  // For a group that is kept the values are not checked first: that would cost a small round a
  // tenth of its time, and the reducers check them anyway, except at weight 0. Before a search they
  // are checked: other peers must not form a group for values that cannot be averaged.
  bool known_finite = !msg.values || msg.weight == 0 || !keeps_group(msg, *codecs);
  if (known_finite && msg.values && !all_finite(*msg.values))
    return to_caf(not_finite());
  auto& step = current_.emplace();
  ++steps_;
  step.promise = make_response_promise<round_report>();
  step.elements = elements;
  step.codecs = std::move(*codecs);
  step.known_finite = known_finite;
  step.attempts.began = now();
  step.attempts.deadline = msg.deadline;
  step.what = std::move(msg);
  auto promise = step.promise;
  attempt();
  return promise;
}

void vector_averager::attempt() {
  auto& step = *current_;
  step.attempts.search_began = now();
  step.plan.reset();
  step.kept_group = step.has_group = step.called = false;
  step.enter(step_stage::looking_for_group);
  if (!keeps_group(step.what, step.codecs))
    return search();
  if (admits(step.what) && kept_.members.back() == ctx_.record.id)
    return make_room_or_stay();
  stay();
}

void vector_averager::search() {
  auto& step = *current_;
  if (step.cancelled)
    return leave_and_fail({ec::cancelled, {}});
  set_group({}, false); // find_group leaves it
  if (!step.is_finite())
    return leave_and_fail(not_finite());
  auto left = step.attempts.time_left(now());
  find_group question{.codecs = step.codecs,
                      .gather = step.what.gather,
                      .deadline = left,
                      .expected_peers = step.what.expected_peers};
  if (const auto& begin = step.what.begin) {
    auto wait =
      std::chrono::duration_cast<milliseconds>(waggle::difference(*begin, ctx_.wall->now()));
    question.gather_for = std::clamp<milliseconds>(wait - found_before, 0ms, gather_max);
  }
  question.avoided = avoided_;
  question.open_groups = admits(step.what) && step.not_admitted < groups_tried_max;
  request(group_, left + 4s, std::move(question))
    .then([this](const group_formed& formed) { on_found(formed); },
          [this](const caf::error& why) {
            current_->attempts.on_search_over(now());
            avoided_.clear();
            deliver_failure(from_caf(why));
          });
}

void vector_averager::on_found(const group_formed& formed) {
  if (formed.open_group)
    return enter(*formed.open_group);
  auto& step = *current_;
  step.attempts.on_search_over(now());
  step.plan = formed.plan;
  group_view begun{true, formed.plan.epoch, {}, {}, step.elements};
  for (const auto& member : formed.plan.members)
    begun.members.push_back(member.peer.id);
  kept_codecs_ = step.codecs;
  set_group(std::move(begun),
            !formed.regrouped && !(formed.left_out && step.what.expected_peers == 0));
  run_when_due();
}

/// The group of other peers that matchmaking found.
void vector_averager::enter(const peer_record& leader) {
  auto& step = *current_;
  if (step.cancelled)
    return leave_and_fail({ec::cancelled, {}});
  if (!config_.auxiliary) // an auxiliary takes the vector of any group
    send(group_, describe_vector{step.elements});
  // A leader that accepts us and never admits us must leave time to search for other peers.
  auto patience = step.attempts.time_left(now()) / 4;
  request(group_, patience + 2s, enter_group{{leader}, {}, patience})
    .then(
      [this](const group_view& entered) {
        current_->attempts.on_search_over(now());
        kept_codecs_ = current_->codecs;
        set_group(entered, true);
        run_when_due();
      },
      [this](const caf::error&) {
        ++current_->not_admitted;
        search();
      });
}

/// There is a group: begins its round, or waits until it may.
void vector_averager::run_when_due() {
  auto& step = *current_;
  step.has_group = true;
  if (step.cancelled)
    return leave_and_fail({ec::cancelled, {}});
  auto left = step.attempts.time_left(now());
  auto wait = time_to_begin();
  if (!step.what.triggered && wait == 0ms)
    return run();
  if (left == 0ms)
    return leave_and_fail({ec::timeout, step.what.triggered
                                          ? "nobody allowed the all-reduce in time: call "
                                            "allow_allreduce, or give a longer timeout"
                                          : "the scheduled time has not come in time"});
  step.enter(step_stage::awaiting_trigger);
  delayed_send(this, step.what.triggered ? left : std::min(left, wait), step_due{steps_});
}

/// 0: now.
milliseconds vector_averager::time_to_begin() const {
  const auto& step = *current_;
  if (!step.what.begin || step.called)
    return 0ms;
  auto wait = waggle::difference(*step.what.begin, ctx_.wall->now());
  if (!leads())
    wait += leader_late_max;
  // Rounded up: it must not begin before.
  return std::max(std::chrono::ceil<milliseconds>(wait), 0ms);
}

void vector_averager::trigger(const trigger_step& msg) {
  if (!current_ || !current_->what.triggered || current_->what.progress != msg.step)
    return; // it has ended
  auto& step = *current_;
  step.what.triggered = false;
  step.what.values = msg.values;
  step.known_finite = false; // checked if the round fails
  if (step.has_group)
    run_when_due();
}

void vector_averager::cancel(const cancel_step& msg) {
  if (!current_ || current_->what.progress != msg.step)
    return;
  current_->cancelled = true;
  if (current_->has_group)
    return run_when_due();
  send(group_, quit_group{}); // ends the search, the entry or the round
}

/// Where no answer is awaited.
void vector_averager::leave_and_fail(failure why) {
  set_group({}, false);
  send(group_, quit_group{});
  deliver_failure(std::move(why));
}

void vector_averager::run() {
  auto& step = *current_;
  step.has_group = false;
  step.enter(step_stage::running);
  auto left = step.attempts.time_left(now());
  average_in_group what{
    step.what.values, step.what.weight, kept_.epoch, step.what.begin && leads(), left,
    step.what.deltas};
  request(group_, left + 10s, std::move(what))
    .then([this](const group_round& ended) { on_round(ended); },
          [this](const caf::error& why) {
            send(group_, quit_group{});
            group_round ended;
            ended.report.why = from_caf(why);
            on_round(std::move(ended));
          });
}

/// The round has ended: the step, too, or it tries again.
void vector_averager::on_round(group_round ended) {
  auto& step = *current_;
  set_group(std::move(ended.group), may_keep_);
  avoided_ = std::move(ended.avoided);
  auto& report = ended.report;
  bool failed = report.outcome == round_outcome::failed;
  // Others may search while these members, who admit peers and refer to their group, average no
  // more. The first time, they may only have been busy.
  bool entered = !step.plan && !step.kept_group;
  if (entered && failed && step.attempts.failures > 0) {
    for (const auto& fault : report.faults)
      if (kind_of(fault.reason) == fault_kind::silent)
        avoided_.push_back(fault.peer);
    std::sort(avoided_.begin(), avoided_.end());
  }
  if (const auto& plan = step.plan; plan && plan->id == report.round)
    for (auto& [peer, text] : report.gathered)
      if (auto at = position_of(peer, *plan); at < plan->members.size())
        text = plan->gathered[at];
  // A member that excludes us because of our values cannot tell us; we check them ourselves.
  if (failed && !step.is_finite())
    return deliver_failure(not_finite());
  // The next attempt finds a group, so this was not one of the attempts that are counted.
  if (failed && !step.kept_group)
    ++step.attempts.failures;
  step.what.begin.reset(); // an attempt after it begins at once
  if (!step.cancelled
      && step.attempts.again(report, step.what.retries.value_or(config_.retries_max), ctx_, now()))
    return attempt();
  deliver(std::move(report));
}

void vector_averager::deliver(round_report report) {
  auto step = std::move(*current_);
  current_.reset();
  step.enter(step_stage::done);
  report.kind = config_.kind;
  report.matchmaking_seconds = step.attempts.matchmaking_seconds;
  if (report.values && step.what.values && report.weight_sum > 0 && step.what.alpha != 1) {
    const auto& own = *step.what.values;
    auto moved = ctx_.vectors->take(own.size());
    for (std::size_t i = 0; i < own.size(); ++i) {
      double delta = static_cast<double>((*report.values)[i]) - own[i];
      (*moved)[i] = static_cast<float>(own[i] + step.what.alpha * delta);
    }
    report.values = std::move(moved);
  }
  step.promise.deliver(std::move(report));
}

void vector_averager::deliver_failure(failure why) {
  round_report report{.why = std::move(why)};
  if (current_->plan)
    report.round = current_->plan->id;
  deliver(std::move(report));
}

// -- the open group -----------------------------------------------------------------------------

/// Whether the group of a step with this request may grow.
bool vector_averager::admits(const average_vector& what) {
  return what.reuse_group && what.expected_peers == 0 && what.gather.empty();
}

bool vector_averager::keeps_group(const average_vector& what, const codec_plan& codecs) const {
  auto members = kept_.members.size();
  bool enough = what.expected_peers == 0 ? members > 1 : members == what.expected_peers;
  return kept_.member && may_keep_ && enough && what.reuse_group && what.gather.empty()
         && codecs == kept_codecs_;
}

/// As the last member: leaves the group if others search in vain because it is full. One of them
/// enters instead, or forms another group with us; without that, a peer that comes later than the
/// group would never have one. The other members go on, whoever asks.
void vector_averager::make_room_or_stay() {
  request(matchmaker_, question_timeout, is_place_wanted{})
    .then([this](bool wanted) { wanted ? search() : stay(); },
          [this](const caf::error&) { stay(); });
}

void vector_averager::stay() {
  current_->kept_group = true;
  run_when_due();
}

/// Lets the matchmaker refer peers that search to the group's leader.
void vector_averager::set_group(group_view now, bool may_keep) {
  kept_ = std::move(now);
  may_keep_ = may_keep;
  set_open_group open;
  if (kept_.member && may_keep_ && current_ && admits(current_->what))
    open = {kept_.members.front(), kept_.members.size(), kept_codecs_};
  std::pair now_open{open.leader, open.members};
  if (std::exchange(open_, now_open) != now_open)
    send(matchmaker_, std::move(open));
}

} // namespace waggle
