// find_members ─► find_group ─► group_averager ─► matchmaker ─► members_found
//   └ with `call`: call_round to the connected members ─► round_called to their listeners
// average_in_group ─► the same of the group_averager ─► failed: find_group again, or ─► group_round
// extra auxiliary: find_members ─► find_group and average_in_group, again and again;
//   the run's next epoch ─► members_found
// swarm_progress ─► run_group ─► group_view to the listener; too far behind ─► cancel_search

#include "actors/averaging/moshpit_averager.hpp"

#include <algorithm>
#include <array>

#include "actors/guard.hpp"
#include "runtime/averaging/part_reducer.hpp"

namespace waggle {

namespace {

/// The group_averager keeps its deadlines by itself; this is for one that has a bug.
constexpr auto answer_grace = 10s;
/// Of an extra auxiliary, after a round that failed.
constexpr auto pause_after_failure = 500ms;

} // namespace

moshpit_averager::moshpit_averager(caf::actor_config& cfg, node_context ctx,
                                   averaging_config averaging, matchmaking_config members,
                                   std::uint64_t tolerance, kept_group_actor rounds)
  : moshpit_averager_base(cfg), ctx_(std::move(ctx)), config_(std::move(averaging)),
    members_(std::move(members)), rounds_(std::move(rounds)),
    run_(ctx_.record.id, tolerance, ctx_.listed()) {
  end_on_exception(this, ctx_);
}

void moshpit_averager::on_exit() {
  current_.reset();
  rounds_ = nullptr;
  listener_ = nullptr;
}

moshpit_averager::behavior_type moshpit_averager::make_behavior() {
  return {
    [this](const inbound_call& call) -> caf::result<outbound_answer> {
      if (!std::holds_alternative<wire::enter_group>(call.what))
        return to_caf(ec::protocol_violation, "this is not for averaging");
      // This run has no open group.
      return outbound_answer{wire::join_reply{ec::not_ready, {}}, {}};
    },
    [this](const inbound_event& msg) { on_event(msg); },
    [this](const describe_vector& msg) { describe(msg); },
    [this](const found_group& msg) -> caf::result<group_view> {
      if (!elements_)
        return to_caf(ec::not_ready, "the vector has not been described yet");
      quit_from();
      run_.enter(msg.branch, msg.epoch);
      return told_ = view();
    },
    [this](const enter_group& msg) { return enter(msg); },
    [this](quit_group) { quit_from(); },
    [](get_residual) { return group_residual{}; }, // its group_averager has one, of no history
    [this](const find_members& msg) { return find(msg); },
    [this](const average_in_group& msg) { return average(msg); },
    [this](const peer_connected& msg) {
      run_.on_connected(msg.peer.id);
      refresh();
    },
    [this](const peer_disconnected& msg) {
      run_.on_disconnected(msg.peer);
      refresh();
    },
    [this](const listen_group& msg) { listener_ = msg.listener; },
    [this](const swarm_progress& msg) {
      run_.observe(msg);
      refresh();
    },
    [this](const search_over& msg) {
      if (msg.step != steps_)
        return;
      if (members_.extra && stage_ == stage::searching)
        send(rounds_, cancel_search{});
      if (!is_current())
        return;
      end_search({ec::too_few,
                  fmt::format("no group was found within {:.3g} s", seconds_of(search_time()))});
      delayed_send(this, search_time(), msg); // a round that fails is followed by another search
    },
    [this](const step_expired& msg) {
      if (msg.step != steps_ || stage_ != stage::found)
        return;
      send(rounds_, quit_group{});
      end_step({ec::timeout, "the step was not triggered before its deadline"});
    },
    [this](look_for_groups) { reduce_for_next_group(); },
  };
}

void moshpit_averager::describe(const describe_vector& what) {
  std::array<tensor_info, 1> whole{{{"0", what.elements, config_.role}}};
  auto codecs =
    plan_codecs(config_.codec, what.tensors.empty() ? std::span<const tensor_info>{whole}
                                                    : std::span{*what.tensors.front()});
  if (!codecs || elements_of(*codecs) != what.elements) {
    ctx_.log->error("averaging cannot begin: {}",
                    codecs ? "the tensors do not add up to the vector" : to_string(codecs.error()));
    return quit(to_caf(ec::bad_config));
  }
  elements_ = what.elements;
  codecs_ = std::move(*codecs);
}

// -- the run as a group ---------------------------------------------------------------------------

group_view moshpit_averager::view() const {
  group_view out;
  if (!run_.is_member())
    return out;
  out.member = true;
  out.epoch = run_.run_epoch();
  out.branch = run_.branch();
  out.members = run_.members();
  return out;
}

caf::result<group_view> moshpit_averager::enter(const enter_group& msg) {
  if (!elements_)
    return to_caf(ec::not_ready, "the vector has not been described yet");
  quit_from();
  auto epoch = run_.epoch_of(msg.branch);
  if (!epoch)
    return to_caf(ec::not_ready, "no peer trains this history now");
  run_.enter(msg.branch, *epoch);
  return told_ = view();
}

void moshpit_averager::quit_from() {
  bool was_member = run_.is_member();
  auto branch = was_member ? run_.branch() : digest{};
  run_.leave();
  reduced_.reset();
  if (stage_ != stage::over)
    send(rounds_, quit_group{});
  if (stage_ == stage::found)
    stage_ = stage::over; // otherwise its answer follows
  if (!current_)
    return;
  auto run = std::move(*current_);
  current_.reset();
  group_round ended;
  ended.report.why = {ec::cancelled, {}};
  ended.branch = branch;
  if (run.promise)
    run.promise->deliver(std::move(ended));
  else if (run.search)
    run.search->deliver(members_found{std::move(ended)});
}

/// The claims of the others have changed.
void moshpit_averager::refresh() {
  if (!run_.is_member())
    return;
  if (!current_)
    run_.set_epoch(run_.run_epoch()); // the listener goes there, too
  else if (members_.extra)
    serve_run();
  else if (run_.left_behind())
    end_search({ec::epoch_mismatch, "no group was found before the run reached epoch "
                                      + std::to_string(run_.run_epoch().value())});
  auto current = view();
  if (current.epoch == told_.epoch && current.members == told_.members)
    return;
  told_ = current;
  if (listener_)
    send(listener_, current);
  if (!current_)
    notify_if_called();
}

void moshpit_averager::on_event(const inbound_event& event) {
  event.release();
  const auto* call = std::get_if<wire::call_round>(&event.what);
  if (call == nullptr || !run_.is_member())
    return;
  bool before = run_.called();
  run_.on_call(event.from.id, call->upcoming);
  if (!current_ && !before)
    notify_if_called();
}

void moshpit_averager::notify_if_called() {
  if (run_.called() && listener_)
    send(listener_, round_called{run_.epoch()});
}

// -- rounds ---------------------------------------------------------------------------------------

caf::result<members_found> moshpit_averager::find(const find_members& msg) {
  if (!elements_ || !run_.is_member())
    return to_caf(ec::not_ready, "this peer is in no group");
  if (current_)
    return to_caf(ec::overloaded, "one round at a time");
  run_.set_epoch(msg.epoch); // we may know already that the run is ahead of it
  if (msg.call)
    for (const auto& member : run_.members()) // only over links that are up: a call is a hint
      ctx_.links->tell(member, wire::call_round{run_.call_of(msg.epoch)}, {});
  auto& run = current_.emplace();
  run.what = msg;
  run.began = now();
  if (run_.partners() == 0 && !members_.extra)
    return members_found{};
  auto promise = make_response_promise<members_found>();
  run.search = promise;
  if (members_.extra)
    reduce_for_next_group();
  else
    begin_step();
  return promise;
}

/// Of the next step.
void moshpit_averager::begin_attempts(steady_time began, milliseconds deadline) {
  ++steps_;
  attempts_ = {began, deadline};
  question_ = {};
  question_.epoch = run_.meeting();
  question_.codecs = codecs_;
  question_.one_round = true;
}

void moshpit_averager::begin_step() {
  if (stage_ != stage::over)
    return; // see end_step
  auto& run = *current_;
  begin_attempts(run.began, run.what.deadline);
  run.step = steps_;
  // With fewer peers than a full group, the group is complete once all are in it.
  question_.expected_peers = static_cast<std::uint32_t>(
    std::min({run_.partners() + 1, members_.target_group_size, round_members_max}));
  auto left = attempts_.time_left(now());
  if (left == 0ms)
    return end_step({ec::timeout, "the round before took too long"});
  search();
  delayed_send(this, search_time(), search_over{run.step});
  delayed_send(this, left, step_expired{run.step});
}

/// For the first time in a step, or again.
void moshpit_averager::search() {
  stage_ = stage::searching;
  found_ = {};
  attempts_.search_began = now();
  question_.deadline = attempts_.time_left(now());
  request(rounds_, question_.deadline + answer_grace, question_)
    .then(
      [this](const group_formed& formed) {
        found_ = formed.plan.id;
        attempts_.on_search_over(now());
        on_found();
      },
      [this](const caf::error& why) {
        attempts_.on_search_over(now());
        end_step(from_caf(why));
      });
}

void moshpit_averager::on_found() {
  average_in_group nothing{.weight = 1};
  if (members_.extra)
    return start_round(nothing);
  if (!is_current()) // we have left, and so has the group_averager
    return end_step({ec::cancelled, {}});
  auto& run = *current_;
  run.gave_up = {};
  if (!run.search)
    return start_round(run.values);
  stage_ = stage::found;
  std::exchange(run.search, std::nullopt)->deliver(members_found{});
}

/// Ends the search of the current step. A round that has begun goes on.
void moshpit_averager::end_search(failure why) {
  if (stage_ != stage::searching || !is_current())
    return;
  current_->gave_up = std::move(why);
  send(rounds_, cancel_search{});
}

caf::result<group_round> moshpit_averager::average(const average_in_group& msg) {
  if (!current_ || current_->search)
    return to_caf(ec::not_ready, "the members of this round have not been found");
  auto& run = *current_;
  if (run.promise)
    return to_caf(ec::overloaded, "one round at a time");
  if (msg.epoch != run.what.epoch)
    return to_caf(ec::epoch_mismatch, "the members were found for another epoch");
  if (!msg.values || msg.values->size() != *elements_)
    return to_caf(ec::wrong_shape, "the vector has another length than the group's");
  if (!is_weight(msg.weight))
    return to_caf(ec::bad_weight, "a weight must be 0, or finite and positive");
  auto promise = make_response_promise<group_round>();
  run.promise = promise;
  if (run.over) {
    deliver(std::move(*run.over));
  } else if (run.step == 0) {
    round_plan alone;
    alone.members.push_back({ctx_.own_record(), members_.mode});
    deliver(report_of_one(alone, msg.weight, msg.values));
  } else if (!all_finite(*msg.values)) {
    send(rounds_, quit_group{});
    end_step({ec::non_finite, "the vector holds NaN or infinite values"});
  } else {
    run.values = msg;
    start_round(msg);
  }
  return promise;
}

void moshpit_averager::start_round(average_in_group what) {
  stage_ = stage::averaging;
  what.epoch = question_.epoch;
  what.call = false;
  what.deltas = current_ && current_->what.deltas;
  what.fills = nullptr;
  what.deadline = attempts_.time_left(now());
  auto patience = what.deadline + answer_grace;
  request(rounds_, patience, std::move(what))
    .then([this](group_round& ended) { on_round(std::move(ended.report)); },
          [this](const caf::error& why) {
            round_report report{.why = from_caf(why)};
            on_round(std::move(report));
          });
}

void moshpit_averager::on_round(round_report report) {
  if (report.outcome == round_outcome::failed)
    ++attempts_.failures;
  // An extra auxiliary's whole group looks for others.
  if (!members_.extra && is_current() && attempts_.again(report, config_.retries_max, ctx_, now()))
    return search();
  end_step(std::move(report));
}

void moshpit_averager::end_step(failure why) {
  round_report report{.why = std::move(why), .round = found_};
  end_step(std::move(report));
}

void moshpit_averager::end_step(round_report report) {
  stage_ = stage::over;
  report.kind = config_.kind;
  report.matchmaking_seconds = attempts_.matchmaking_seconds;
  if (members_.extra)
    return on_reduced(std::move(report));
  if (is_current()) {
    if (report.why.code == ec::cancelled && current_->gave_up.code != ec::none)
      report.why = current_->gave_up;
    deliver(std::move(report));
  } else if (current_ && current_->search) { // it was waiting for the end of the one that we left
    begin_step();
  }
}

void moshpit_averager::deliver(round_report report) {
  auto& run = *current_;
  if (!run.promise && !run.search) {
    run.over = std::move(report); // until the values arrive
    return;
  }
  auto promise = std::move(run.promise);
  auto search = std::move(run.search);
  auto ended = end_round(std::move(report));
  if (promise)
    promise->deliver(std::move(ended));
  else
    search->deliver(members_found{std::move(ended)});
  notify_if_called();
}

group_round moshpit_averager::end_round(round_report report) {
  current_.reset();
  if (report.outcome != round_outcome::failed && !members_.extra) // see on_reduced
    run_.on_round(report.contributors);
  run_.end_epoch();
  group_round ended;
  ended.report = std::move(report);
  ended.branch = run_.branch(); // no round forks it: see runtime/matchmaking/README.md
  ended.group = told_ = view();
  return ended;
}

// -- an extra auxiliary ---------------------------------------------------------------------------

/// The claims of the others have changed.
void moshpit_averager::serve_run() {
  if (run_.run_epoch() == run_.epoch())
    return reduce_for_next_group(); // there may be partners now
  round_report not_needed{.why = {ec::too_few, "no group needed this auxiliary"}};
  auto last = std::exchange(reduced_, std::nullopt);
  deliver(last ? std::move(*last) : std::move(not_needed));
}

void moshpit_averager::reduce_for_next_group() {
  if (!current_ || stage_ != stage::over || run_.partners() == 0)
    return;
  begin_attempts(now(), 2 * current_->what.deadline);
  reduces_for_ = run_.branch();
  delayed_send(this, current_->what.deadline, search_over{steps_}); // the rest is for the round
  search();
}

void moshpit_averager::on_reduced(round_report report) {
  bool failed = report.outcome == round_outcome::failed || !report.values;
  if (!failed && run_.is_member() && run_.branch() == reduces_for_) {
    run_.on_round(report.contributors);
    reduced_ = std::move(report);
  }
  if (failed)
    delayed_send(this, pause_after_failure, look_for_groups{});
  else
    reduce_for_next_group();
}

} // namespace waggle
