// One epoch: passes, the round that averages their gradient, the update that ends it.

#include <algorithm>
#include <cmath>

#include "actors/guard.hpp"
#include "actors/trainer.hpp"

namespace waggle {

namespace {

constexpr auto report_interval = 2ms;
constexpr double report_delay = 0.002; // seconds from a peer's report to another peer's decision

double norm_of(std::span<const float> values) {
  double sum = 0;
  for (float v : values)
    sum += static_cast<double>(v) * static_cast<double>(v);
  return std::sqrt(sum);
}

void smooth(double& average, double value) {
  average = average == 0 ? value : 0.8 * average + 0.2 * value;
}

} // namespace

/// Whether the samples that this peer reports count toward our group's epoch.
bool trainer::counts_here(const swarm_progress::peer& peer) const {
  const auto& in = group_.members;
  return peer.who.id != ctx_.record.id && peer.epoch == at_.epoch()
         && peer.claim.past.branch == at_.past().branch && peer.claim.group_size > 0
         && std::find(in.begin(), in.end(), peer.who.id) != in.end();
}

/// The samples that the other members have reported for this epoch.
std::uint64_t trainer::samples_of_others() const {
  std::uint64_t sum = 0;
  for (const auto& peer : view_.peers)
    if (counts_here(peer))
      sum += std::min<std::uint64_t>(peer.samples, config_.target_batch_size);
  return sum;
}

/// The input of the pure functions that decide (runtime/training/plan.hpp).
situation trainer::present() const {
  situation now;
  now.own_steps = status_.steps;
  now.own_samples = at_.in_step() ? own_samples() : 0;
  now.swarm_samples = at_.in_step() ? own_samples() + samples_of_others() : 0;
  now.round_called = called_;
  now.in_group = place_ == place::member;
  now.members = static_cast<std::uint32_t>(group_.members.size());
  now.pass_running = passing_;
  now.epochs_done = at_.epoch().value();
  now.max_epochs = config_.max_epochs;
  now.lanes = ledger_.lanes();
  return now;
}

void trainer::carry_out() {
  if (given_ && !given_->in_round)
    return send_round(true); // its round failed, and we are in a group at its epoch again
  for (const auto& act : on_offer(strategy_, present()))
    switch (act.what) {
      case action::kind::merge:
        end_epoch(*std::exchange(ended_, std::nullopt));
        return carry_out(); // the rest of the plan was for the epoch that has ended
      case action::kind::begin:
        begin_round(!called_);
        break;
      case action::kind::hold:
        maybe_pass();
        break;
      case action::kind::inner_step:
      case action::kind::give_up: // on_round_failed settles a round without a result
      case action::kind::end_epoch:
      case action::kind::await:
      case action::kind::finish:
        break;
    }
}

void trainer::begin_round(bool call) {
  contribution given{at_.epoch(), nullptr, 0, false};
  if (at_.in_step()) {
    auto mean = model_->take_mean_vector(*ctx_.vectors);
    given.own = std::move(mean.values);
    given.samples = mean.samples;
  } else {
    auto zeros = ctx_.vectors->take(model_->parameter_count());
    std::fill(zeros->begin(), zeros->end(), 0.0F);
    given.own = std::move(zeros);
  }
  ledger_.add(given.samples);
  (void)ledger_.begin(gradients, status_.steps, at_.epoch().value());
  given_ = std::move(given);
  send_round(call);
}

void trainer::send_round(bool call) {
  called_ = false;
  given_->in_round = true;
  average_in_group question{given_->own, static_cast<double>(given_->samples), at_.epoch(), call,
                            config_.averaging_timeout};
  auto number = ++rounds_;
  request(peers_.averager, config_.averaging_timeout + 5s, std::move(question))
    .then(
      [this, number](const group_round& round) {
        if (number == rounds_)
          on_round(round);
      },
      [this, number](const caf::error& why) {
        if (number != rounds_)
          return;
        round_report report;
        report.why = from_caf(why);
        on_round_failed(report);
        react();
      });
}

void trainer::on_round(const group_round& round) {
  const auto& report = round.report;
  round_ended event{"gradients", report};
  event.report.values.reset();
  send(peers_.exporter, std::move(event));
  if (report.outcome == round_outcome::failed) {
    on_round_failed(report);
  } else {
    ++(report.outcome == round_outcome::complete ? status_.rounds_complete : status_.rounds_shrunk);
    status_.last_outcome = report.group_size == 1 ? "alone" : to_string(report.outcome);
    if (status_.first_round_seconds == 0) {
      status_.first_round_seconds = seconds_of(now() - started_at_);
      ctx_.metrics->set_first_round(status_.first_round_seconds);
    }
    round_facts facts;
    facts.contributors = static_cast<std::uint32_t>(report.contributors.size());
    facts.own_samples = given_->samples;
    ledger_.end(gradients, waggle::on_round(strategy_.lanes[gradients], facts));
    ended_ = round;
    carry_out();
  }
  react();
}

void trainer::on_round_failed(const round_report& report) {
  ++status_.rounds_failed;
  status_.last_outcome = "failed: " + std::string{to_string(report.why.code)};
  ctx_.log->info("epoch {} was not averaged: {}", at_.epoch().value(), to_string(report.why));
  round_facts facts;
  facts.excluded = report.why.code == ec::excluded;
  facts.others_remain = facts.time_left = true; // in the next group that this peer is in
  facts.own_samples = given_->samples;
  if (waggle::on_round(strategy_.lanes[gradients], facts) != verdict::retry || !at_.in_step())
    drop_contribution("left_out");
  // A peer that was excluded knows that the others go on as a group.
  lost_group_ = !facts.excluded;
  lost_members_ = group_.members;
  leave({});
  report_own_progress();
}

void trainer::end_epoch(const group_round& round) {
  const auto& report = round.report;
  auto given = *std::exchange(given_, std::nullopt);
  group_ = round.group;
  auto update = update_of(round);
  const auto& in = report.contributors;
  bool counted = update.mean && std::find(in.begin(), in.end(), ctx_.record.id) != in.end();
  count(ledger_.settle(gradients, counted), update.mean ? "left_out" : "not_finite");
  if (!round.keeps_majority) {
    provisional_ = true;
    ctx_.log->warn("most of the group is gone: going on provisionally as history {}",
                   short_name(update.branch));
  }
  called_ = false;
  losses_.end_epoch();
  smooth(epoch_seconds_, seconds_of(now() - epoch_began_));
  epoch_began_ = now();
  carry(at_.end_epoch(std::move(update)));
  if (place_ == place::member && !group_.member)
    leave("the group has ended, or its last round was decided without us");
  report_own_progress();
  log_progress();
}

/// The update with which a round ends its epoch. Also updates status and metrics.
missed_update trainer::update_of(const group_round& round) {
  const auto& report = round.report;
  auto samples = samples_of(report.weight_sum);
  missed_update update;
  update.epoch = at_.epoch();
  update.rate = config_.schedule.at(at_.epoch());
  update.work = samples * report.contributors.size();
  update.branch = round.branch;
  update.before = at_.past().branch;
  double norm = 0;
  if (report.weight_sum > 0 && report.values) {
    norm = norm_of(*report.values);
    update.mean = report.values;
    if (!std::isfinite(norm)) { // each pass was finite, but their sum may overflow
      ctx_.metrics->count_nonfinite("gradient");
      ctx_.log->warn("the mean gradient of epoch {} is not finite, it is dropped",
                     at_.epoch().value());
      update.mean = nullptr;
    }
  }
  status_.effective_batch = samples;
  ctx_.metrics->set_effective_batch(report.weight_sum);
  status_.learning_rate = update.rate;
  status_.gradient_norm = norm;
  return update;
}

void trainer::apply(const run_position::step& step) {
  const auto& update = step.update;
  under_way_.push_back(update.mean ? update.mean->size() * sizeof(float) : 0);
  bytes_under_way_ += under_way_.back();
  send(worker_, apply_update{update.mean, update.rate, step.after});
}

pass_decision trainer::next_pass() const {
  pass_situation situation;
  situation.target = config_.target_batch_size;
  situation.own_samples = own_samples();
  situation.own_pass = pass_seconds_;
  situation.epoch = epoch_seconds_;
  auto wall = ctx_.wall->now();
  for (const auto& peer : view_.peers)
    if (counts_here(peer))
      situation.others.push_back({std::min(peer.samples, config_.target_batch_size),
                                  std::max(0.0, seconds_of(waggle::difference(wall, peer.time))),
                                  report_delay, peer.samples_per_second, 0});
  return decide_pass(situation);
}

void trainer::maybe_pass() {
  if (passing_ || !at_.in_step() || config_.auxiliary)
    return;
  auto plan_look = [this](std::chrono::nanoseconds pause) {
    if (!std::exchange(pass_planned_, true))
      delayed_send(this, pause, check_swarm{false});
  };
  auto next = passed_ + config_.step_interval;
  if (now() < next)
    return plan_look(next - now());
  // Peers that sleep between passes are mostly not in the middle of one, so only the samples that
  // they have reported are expected of them.
  bool sleeps = seconds_of(config_.step_interval) > pass_seconds_;
  auto decided = sleeps ? pass_decision{} : next_pass();
  if (!decided.begin)
    return plan_look(std::chrono::nanoseconds{
      static_cast<std::int64_t>(std::clamp(decided.wait, 0.0005, 1.0) * 1e9)});
  passing_ = true;
  send(worker_, run_pass{});
}

void trainer::on_pass(const pass_done& pass) {
  passing_ = false;
  passed_ = now();
  const auto& step = pass.step;
  ++status_.steps;
  if (step.finite) {
    losses_.note(step.loss);
  } else {
    ctx_.metrics->count_nonfinite("gradient");
    ledger_.refuse(step.samples);
    count({0, step.samples}, "not_finite");
  }
  smooth(pass_seconds_, pass.seconds);
  if (pass.seconds > 0)
    smooth(status_.samples_per_second, static_cast<double>(step.samples) / pass.seconds);
  auto cycle = std::max(pass_seconds_, seconds_of(config_.step_interval));
  own_rate_ = cycle > 0 ? static_cast<double>(step.samples) / cycle : 0;
  bool reached = own_samples() + samples_of_others() >= config_.target_batch_size;
  if (own_samples() != own_samples_reported_
      && (reached || now() - reported_to_tracker_ >= report_interval))
    report_own_progress();
  if (stopping_ || !at_.in_step()) // it belongs to a state that is about to be replaced
    drop_accumulated(stopping_ ? "stopped" : "left_out");
  react();
}

} // namespace waggle
