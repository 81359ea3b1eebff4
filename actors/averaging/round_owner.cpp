#include "actors/averaging/round_owner.hpp"

#include <algorithm>

#include <spdlog/logger.h>

#include "actors/averaging/compute_worker.hpp"
#include "actors/guard.hpp"
#include "runtime/core/check.hpp"
#include "runtime/core/log_about.hpp"

namespace waggle {

void round_owner::begin(caf::scheduled_actor& self) {
  ctx_.metrics->show_rounds(std::string_view{config_.kind});
  for (std::size_t i = 0; i < config_.part_workers; ++i)
    workers_.push_back(
      spawn_apart<compute_worker, caf::linked>(self, config_.detach_workers, ctx_));
  on_forget_old(self);
}

void round_owner::on_forget_old(caf::scheduled_actor& self) {
  for (auto unwanted = ctx_.rounds->forget_old(self.clock().now()); unwanted > 0; --unwanted)
    ctx_.metrics->count_refused_input(ec::unknown_round);
  caf::delayed_anon_send(caf::actor_cast<self_messages>(&self), 1s, forget_old{});
}

void round_owner::end() {
  round_ = nullptr;
  workers_.clear();
}

void round_owner::start(caf::scheduled_actor& self, round_request what, milliseconds time_left,
                        const switchboard_actor& switchboard) {
  WAGGLE_CHECK(!runs(), short_name(what.plan.id));
  auto settings = config_.round;
  settings.deadline = std::min(settings.deadline, std::max(time_left, milliseconds{1}));
  log_about about{{.epoch = what.plan.epoch, .round = what.plan.id}};
  ctx_.log->debug("round {} begins with {} members", short_name(what.plan.id),
                  what.plan.members.size());
  auto why = why_unchecked(what.plan);
  if (!why.empty() && std::exchange(unchecked_, why) != why)
    ctx_.log->info("the members of the group check nothing that they say in {} rounds: they are {}",
                   config_.kind, why);
  auto listener = caf::actor_cast<round_listener_actor>(&self);
  round_ = self.spawn<allreduce_round, caf::monitored>(
    ctx_, settings, std::move(what), round_handles{switchboard, listener, workers_});
  if (!std::exchange(ticking_, true))
    check_later(self);
}

void round_owner::check_later(caf::scheduled_actor& self) const {
  caf::delayed_anon_send(caf::actor_cast<self_messages>(&self), round_check_interval(config_.round),
                         check_rounds{});
}

void round_owner::on_check(caf::scheduled_actor& self) {
  ticking_ = runs();
  if (!ticking_)
    return;
  caf::anon_send(round_, check_round{});
  check_later(self);
}

bool round_owner::is_round(const caf::actor_addr& source) const {
  return round_ && round_.address() == source;
}

void round_owner::cancel(failure why, bool unless_prepared) {
  if (round_)
    caf::anon_send(round_, cancel_round{std::move(why), unless_prepared});
}

void round_owner::report_lost(const peer_disconnected& msg) {
  if (round_)
    caf::anon_send(round_, msg);
}

void round_owner::exit(caf::scheduled_actor& self, const caf::error& why) {
  if (round_)
    self.send_exit(round_, why);
}

void round_owner::count(const round_report& report) const {
  if (config_.observer)
    config_.observer(report);
  ctx_.metrics->count_round(
    std::string_view{config_.kind}, to_string(report.outcome), report.allreduce_seconds,
    static_cast<double>(report.contributors.size()), report.recovery_seconds);
}

} // namespace waggle
