// evaluate_weights ─► model on other data ─► model_evaluated

#include "actors/training/evaluation_worker.hpp"

#include <cmath>

#include "actors/guard.hpp"
#include "runtime/core/log_about.hpp"

namespace waggle {

evaluation_worker::evaluation_worker(caf::actor_config& cfg, node_context ctx,
                                     evaluator_factory make,
                                     std::shared_ptr<const std::atomic<bool>> stop)
  : evaluation_worker_actor::base(cfg), ctx_(std::move(ctx)), make_(std::move(make)),
    stop_(std::move(stop)) {
  end_on_exception(this, ctx_);
}

evaluation_worker::behavior_type evaluation_worker::make_behavior() {
  return {[this](const evaluate_weights& msg) { return measure(msg); }};
}

/// A user's module may throw anything; training goes on without the measurement.
result<evaluation> evaluation_worker::measured(const evaluate_weights& msg) {
  try {
    if (!evaluator_) {
      auto made = make_();
      if (!made)
        return made.error();
      evaluator_ = std::move(*made);
    }
    return evaluator_->measure(*msg.weights, *stop_);
  } catch (const std::exception& e) {
    std::string what = e.what();
    return failure{ec::internal, what.substr(0, what.find('\n'))};
  }
}

caf::result<model_evaluated> evaluation_worker::measure(const evaluate_weights& msg) {
  if (*stop_)
    return to_caf(ec::shutting_down, "this peer is stopping");
  auto began = clock().now();
  auto found = measured(msg);
  if (!found)
    return to_caf(found.error());
  auto seconds = seconds_of(clock().now() - began);
  ctx_.metrics->set_evaluation(found->loss, found->accuracy, seconds);
  auto accuracy =
    std::isfinite(found->accuracy) ? fmt::format(", accuracy {:.4f}", found->accuracy) : "";
  log_about about{{.epoch = msg.epoch}};
  ctx_.log->info("evaluation of epoch {}: loss {:.4f}{}, {} samples in {:.1f} s", msg.epoch.value(),
                 found->loss, accuracy, found->samples, seconds);
  return model_evaluated{msg.epoch, *found};
}

} // namespace waggle
