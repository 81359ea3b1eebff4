// a copy ─► hash, file ─► state_snapshot

#include "actors/training/state_keeper.hpp"

#include "actors/guard.hpp"
#include "runtime/crypto/digest.hpp"
#include "runtime/status/run_curves.hpp"
#include "runtime/training/trained_model.hpp"

namespace waggle {

state_keeper::state_keeper(caf::actor_config& cfg, node_context ctx,
                           std::optional<checkpoint_store> checkpoints)
  : state_keeper_actor::base(cfg), ctx_(std::move(ctx)), checkpoints_(std::move(checkpoints)) {
  end_on_exception(this, ctx_);
}

state_keeper::behavior_type state_keeper::make_behavior() {
  return {[this](seal_copy& msg) { return complete(msg); }};
}

caf::result<state_snapshot> state_keeper::complete(seal_copy& msg) {
  auto& copied = *msg.copied;
  auto meta = copied.state;
  const auto& table = msg.model->tensors();
  // A model that has diverged must not replace the last checkpoint that can be resumed from.
  if (msg.keep)
    if (auto usable = table.check_in(*copied.image, state_header_bytes, meta.schema); !usable) {
      ctx_.metrics->count_checkpoint_failed();
      return to_caf(usable.error());
    }
  if (meta.parameters.is_zero()) {
    auto hash = sha256_of(*copied.image, state_header_bytes + table.header_bytes(),
                          table.shared_count() * sizeof(float));
    if (!hash)
      return to_caf(hash.error());
    meta.parameters = *hash;
  }
  copied.state.parameters = meta.parameters;
  auto began = clock().now();
  auto own = std::move(copied.own); // before `seal` takes the rest
  auto sealed = seal(std::move(copied));
  if (!sealed)
    return to_caf(sealed.error());
  state_snapshot made{meta.epoch, meta.parameters, *sealed, meta.past, {}};
  if (!msg.keep) {
    auto hash = sha256_of(*made.state, 0, made.state->size());
    if (!hash)
      return to_caf(hash.error());
    made.content = *hash;
  } else if (checkpoints_) {
    auto saved = checkpoints_->save(*made.state, own);
    ctx_.note(
      watch::checkpoint{made.epoch.value(), made.state->size(), seconds_of(clock().now() - began),
                        saved ? std::string{"ok"} : std::string{to_string(saved.error().code)}});
    if (saved) {
      ctx_.metrics->count_checkpoint_saved(seconds_of(clock().now() - began),
                                           static_cast<double>(to_nanoseconds(ctx_.wall->now()))
                                             / 1e9);
    } else {
      ctx_.metrics->count_checkpoint_failed();
      ctx_.log->error("could not write a checkpoint: {}", to_string(saved.error()));
    }
    made.kept = saved.ok();
    if (auto curves = ctx_.curves ? ctx_.curves->image() : std::string{}; saved && !curves.empty())
      if (auto beside = checkpoints_->save_curves(curves); !beside)
        ctx_.log->warn("the curves of the run were not saved: {}", to_string(beside.error()));
  }
  return made;
}

} // namespace waggle
