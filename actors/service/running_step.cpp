// begin: average_vector ─► averager ─ round_report ─► asker ─► outcome ─► wait
// The caller's thread sends the question, and later trigger_step or cancel_step: they and the next
// question arrive in the order of its calls.

#include "actors/service/running_step.hpp"

#include "runtime/averaging/part_reducer.hpp"
#include "runtime/core/try.hpp"

namespace waggle {

result<std::shared_ptr<const float_vector>> tensors_in_use::read(vector_pool& vectors,
                                                                 bool auxiliary) {
  if (auxiliary)
    return std::shared_ptr<const float_vector>{};
  auto values = vectors.take(tensors.elements());
  std::lock_guard guard{mutex};
  WAGGLE_TRY(valid, tensors.read(*values));
  return std::shared_ptr<const float_vector>{std::move(values)};
}

void tensors_in_use::write(const round_report& ended, const float_vector* sent, double alpha) {
  std::lock_guard guard{mutex};
  if (alpha == 1 || ended.weight_sum <= 0)
    tensors.write(*ended.values, {}, 1);
  else
    tensors.write(*ended.values, *sent, alpha);
}

average_vector step_question(const average_options& options, const tensors_in_use& of,
                             std::shared_ptr<step_progress> progress) {
  auto question = average_question(options);
  question.codecs = of.tensors.codecs();
  question.elements = of.tensors.elements();
  question.progress = std::move(progress);
  return question;
}

void report_round(const report_relay_actor& to, const round_report& ended) {
  round_ended event{ended};
  event.report.values.reset();
  caf::anon_send(to, std::move(event));
}

result<std::shared_ptr<running_step>> running_step::begin(std::shared_ptr<running_node> peer,
                                                          const averager_table::entry& of,
                                                          std::shared_ptr<tensors_in_use> tensors,
                                                          const average_options& options,
                                                          step_explanation explain) {
  WAGGLE_TRY(valid, check_timeout(options.timeout, "average_options::timeout"));
  if (peer->node.board->has_ended())
    return failure{ec::shutting_down, "this peer has left the run"};
  std::shared_ptr<running_step> step{new running_step{std::move(peer), of, std::move(tensors)}};
  step->explain_ = std::move(explain);
  auto question = step_question(options, *step->tensors_, step->outcome_->progress);
  step->waits_ = question.triggered;
  if (!question.triggered) {
    WAGGLE_TRY(values, step->read());
    question.values = std::move(*values);
    if (of.options.alpha != 1)
      step->sent_ = question.values;
  }
  if (!step->peer_->averagers->begin_round())
    return failure{ec::not_ready, "this peer is paused"};
  step->ask(std::move(question));
  return step;
}

void running_step::ask(average_vector question) {
  caller_thread here;
  auto finish = [all = peer_->averagers, reports = peer_->node.parts.reports,
                 into = outcome_](result<round_report> ended) {
    all->end_round();
    if (ended)
      report_round(reports, *ended);
    std::lock_guard guard{into->mutex};
    into->report = std::move(ended);
    into->progress->store(step_stage::done);
    into->ended.notify_all();
  };
  auto limit = question.deadline + 1s;
  auto asker = peer_->system->spawn(
    [averager = of_.actors.averager, finish, limit](caf::event_based_actor* self) -> caf::behavior {
      auto end = [self, finish](result<round_report> ended) {
        finish(std::move(ended));
        self->quit();
      };
      self->monitor(averager);
      self->set_down_handler(
        [end](const caf::down_msg&) { end(why_unanswered(caf::sec::request_receiver_down)); });
      self->set_error_handler([end](const caf::error& why) { end(why_unanswered(why)); });
      return {[end](const round_report& report) { end(report); },
              caf::after(limit) >> [end] { end(ec::timeout); }};
    });
  caf::send_as(asker, of_.actors.averager, std::move(question));
}

status running_step::allow_allreduce() {
  std::lock_guard guard{mutex_};
  if (!waits_)
    return done{};
  WAGGLE_TRY(values, read());
  if (*values && !all_finite(**values))
    return failure{ec::non_finite, tensors_->tensors.not_finite()};
  waits_ = false;
  if (of_.options.alpha != 1)
    sent_ = *values;
  caller_thread here;
  caf::anon_send(of_.actors.averager, trigger_step{outcome_->progress, std::move(*values)});
  return done{};
}

void running_step::cancel() {
  if (stage() == step_stage::done)
    return;
  caller_thread here;
  caf::anon_send(of_.actors.averager, cancel_step{outcome_->progress});
}

result<average_report> running_step::wait(milliseconds timeout) {
  std::unique_lock waiting{outcome_->mutex};
  if (!outcome_->ended.wait_for(waiting, std::clamp(timeout, 0ms, timeout_max),
                                [this] { return outcome_->report.has_value(); }))
    return failure{ec::not_ready, "the step has not ended yet"};
  auto& ended = *outcome_->report;
  auto report = ended ? average_report_of(*ended) : result<average_report>{ended.error()};
  if (!report) {
    waiting.unlock(); // it may ask other peers
    return explain_ ? explain_(report.error()) : report.error();
  }
  std::lock_guard guard{mutex_};
  if (ended->values && !std::exchange(written_, true) && !of_.options.auxiliary) {
    tensors_->write(*ended, sent_.get(), of_.options.alpha);
    ended->values.reset(); // for the next round
    sent_.reset();
  }
  return report;
}

} // namespace waggle
