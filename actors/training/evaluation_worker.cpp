// evaluate_weights ─► model on other data ─► model_evaluated

#include "actors/training/evaluation_worker.hpp"

#include <cmath>

#include "actors/guard.hpp"
#include "runtime/core/log_about.hpp"
#include "runtime/core/try.hpp"

namespace waggle {

evaluation_worker_actor::behavior_type
measure_weights(evaluation_worker_actor::stateful_pointer<evaluation_worker> self,
                const node_context& ctx, const evaluator_factory& make,
                const std::shared_ptr<std::atomic<bool>>& stop) {
  end_on_exception(self, ctx);
  // A user's module may throw anything; training goes on without the measurement.
  auto measured = [=](const evaluate_weights& msg) -> result<evaluation> {
    try {
      auto& with = self->state.with;
      if (!with) {
        WAGGLE_TRY(made, make());
        with = std::move(*made);
      }
      return with->measure(*msg.weights, *stop);
    } catch (const std::exception& e) {
      std::string what = e.what();
      return failure{ec::internal, what.substr(0, what.find('\n'))};
    }
  };
  return {[=](const evaluate_weights& msg) -> caf::result<model_evaluated> {
    if (*stop)
      return to_caf(ec::shutting_down, "this peer is stopping");
    auto began = self->clock().now();
    auto found = measured(msg);
    if (!found)
      return to_caf(found.error());
    auto seconds = seconds_of(self->clock().now() - began);
    ctx.metrics->set_eval_duration(seconds);
    auto accuracy =
      std::isfinite(found->accuracy) ? fmt::format(", accuracy {:.4f}", found->accuracy) : "";
    log_about about{{.epoch = msg.epoch, .loss = found->loss, .seconds = seconds}};
    ctx.log->info("evaluation of epoch {}: loss {:.4f}{}, {} samples in {:.1f} s",
                  msg.epoch.value(), found->loss, accuracy, found->samples, seconds);
    return model_evaluated{msg.epoch, *found};
  }};
}

} // namespace waggle
