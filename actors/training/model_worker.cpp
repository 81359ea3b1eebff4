// run_pass, apply_update, load_image ─► model ─► pass_done, update_applied, image_loaded ─► trainer
// get_state_snapshot, save_checkpoint ─► a copy ─► state_keeper ─► state_snapshot

#include "actors/training/model_worker.hpp"

#include <chrono>

#include "actors/guard.hpp"
#include "actors/training/evaluation_worker.hpp"
#include "runtime/averaging/patience.hpp"
#include "runtime/core/check.hpp"
#include "runtime/core/log_about.hpp"
#include "runtime/core/try.hpp"
#include "runtime/crypto/run_secret.hpp"
#include "runtime/status/run_curves.hpp"
#include "runtime/training/parameter_sample.hpp"
#include "runtime/training/smooth.hpp"

namespace waggle {

namespace {

constexpr milliseconds seal_timeout = 1h; // a large model, and a checkpoint to a slow disk
constexpr milliseconds evaluation_timeout = 24h;
constexpr milliseconds offered_before = 200ms; // a pass is over

} // namespace

// -- passes beside updates ------------------------------------------------------------------------

namespace {

struct pass_worker {
  static inline const char* name = "pass-worker";
};

pass_worker_actor::behavior_type run_passes(pass_worker_actor::stateful_pointer<pass_worker> self,
                                            const node_context& ctx,
                                            const std::shared_ptr<learner>& model,
                                            const model_listener_actor& listener) {
  end_on_exception(self, ctx);
  return {[=](const run_pass&) {
    auto began = self->clock().now();
    auto step = model->accumulate();
    auto seconds = seconds_of(self->clock().now() - began);
    ctx.metrics->observe_step("forward_backward", seconds);
    self->send(listener, pass_done{step, seconds});
  }};
}

} // namespace

// -- the worker -----------------------------------------------------------------------------------

model_worker::model_worker(caf::actor_config& cfg, node_context ctx, learner_factory make,
                           std::optional<checkpoint_store> checkpoints, state_keeper_actor keeper,
                           model_listener_actor listener, pass_place passes,
                           std::optional<evaluation_plan> evaluation)
  : model_worker_actor::base(cfg), ctx_(std::move(ctx)), make_(std::move(make)),
    checkpoints_(std::move(checkpoints)), keeper_(std::move(keeper)),
    listener_(std::move(listener)), place_(passes), evaluation_(std::move(evaluation)) {
  end_on_exception(this, ctx_);
}

void model_worker::on_exit() {
  *stop_ = true;
  evaluates_ = nullptr;
  keeper_ = nullptr;
  listener_ = nullptr;
  making_.reset();
}

model_worker::behavior_type model_worker::make_behavior() {
  return {
    [this](make_model) { return prepare(); },
    [this](const run_pass& msg) { pass(msg); },
    [this](const apply_update& msg) { apply(msg); },
    [this](const load_image& msg) { load(msg); },
    [this](const rename_history& msg) {
      if (model_)
        model_->rename(msg.past, msg.epoch);
      last_.reset();
    },
    [this](const resume_at& msg) {
      if (auto loaded = shared_->load_position(msg.position); !loaded)
        ctx_.log->info("this peer has other data: {}", to_string(loaded.error()));
      position_ = shared_->position();
    },
    [](const run_job& msg) { return job_done{msg.job()}; },
    [this](const save_checkpoint& msg) { return checkpoint(msg); },
    [this](const get_state_snapshot& msg) { return snapshot(msg); },
  };
}

caf::result<model_ready> model_worker::prepare() {
  auto made = make_();
  if (!made) {
    ctx_.log->error("cannot make the model: {}", to_string(made.error()));
    return to_caf(made.error());
  }
  shared_ = std::move(*made);
  shared_->use_vectors(ctx_.vectors);
  model_.emplace(shared_);
  if (place_ != pass_place::in_turn && !shared_->abilities().passes_beside_updates)
    return to_caf(ec::bad_config,
                  "this model has one copy of its parameters: --delay-optimizer-step needs two");
  WAGGLE_CHECK(place_ == pass_place::in_turn || shared_->tensors().buffer_count() == 0,
               "passes would change the buffers while updates do");
  if (shared_->abilities().resumes)
    position_ = shared_->position();
  auto kept = std::make_shared<own_progress>();
  resume(*kept);
  auto spawn_beside = [this](bool own_thread, auto what, const auto&... args) {
    return own_thread ? spawn<caf::linked + caf::detached>(what, args...)
                      : spawn<caf::linked>(what, args...);
  };
  if (evaluation_)
    evaluates_ =
      spawn_beside(evaluation_->own_thread, measure_weights, ctx_, evaluation_->make, stop_);
  if (model_->epoch().value() > 0) // a later start may have nothing else to do
    evaluate_if_due();
  pass_worker_actor passes = this;
  if (place_ != pass_place::in_turn)
    passes =
      spawn_beside(place_ == pass_place::in_another_thread, run_passes, ctx_, shared_, listener_);
  rounding_ = shared_->rounding();
  auto sample = compared();
  return model_ready{shared_,           model_->epoch(), model_->past(), sample.hash,
                     std::move(passes), std::move(kept), sample.sketch};
}

void model_worker::resume(own_progress& kept) {
  if (!checkpoints_)
    return;
  checkpoints_->remove_drafts();
  auto search = checkpoints_->load_newest(
    shared_->schema(), state_header_bytes + shared_->tensors().image_bytes(), &shared_->tensors());
  if (!search)
    return ctx_.log->warn("cannot look for checkpoints: {}", to_string(search.error()));
  for (const auto& bad : search->skipped)
    ctx_.log->warn("a checkpoint is not used: {}", to_string(bad));
  if (!search->newest) {
    if (!search->skipped.empty())
      ctx_.log->warn("no checkpoint can be used: this peer begins anew, unless other peers of the "
                     "run have a state for it");
    return;
  }
  const auto& newest = *search->newest;
  if (auto loaded = model_->load(as_byte_span(newest.image)); !loaded)
    return ctx_.log->warn("the checkpoint does not fit this model, starting from scratch: {}",
                          to_string(loaded.error()));
  log_about about{{.epoch = newest.epoch}};
  const auto& run = search->own.run;
  bool of_another = !run.empty() && run != run_tag(ctx_.run_id);
  ctx_.log->warn(
    "resumed from the checkpoint of epoch {}{} ({}): to begin anew, remove {}, or give "
    "this peer another data folder",
    newest.epoch.value(), of_another ? " of another run, " + run : std::string{},
    newest.file.string(), newest.file.parent_path().string());
  resume_own(*search, kept);
  resume_curves(newest.epoch);
}

/// Up to the checkpoint that was loaded.
void model_worker::resume_curves(epoch_id last) {
  if (!ctx_.curves)
    return;
  auto kept = checkpoints_->load_curves();
  auto taken = kept ? kept->empty() ? waggle::status{waggle::done{}}
                                    : ctx_.curves->take(*kept, {}, last, ctx_.wall->now())
                    : waggle::status{kept.error()};
  if (!taken)
    ctx_.log->warn("the curves of the run begin anew: {}", to_string(taken.error()));
}

/// What only this peer had: of the checkpoint that was loaded, or nothing.
void model_worker::resume_own(const checkpoint_store::search& found, own_progress& kept) {
  auto anew = [this](std::string_view what, const failure& why) {
    ctx_.log->warn("{} begins anew: {}", what, to_string(why));
  };
  if (found.own_trouble.code != ec::none)
    return anew("what only this peer had", found.own_trouble);
  const auto& own = found.own;
  if (!own.stopped)
    ctx_.log->info(
      "this peer did not end by itself: what it had done since the checkpoint is lost");
  if (!own.own.empty())
    if (auto loaded = shared_->load_own_state(own.own); !loaded)
      anew("the scale of the loss", loaded.error());
  if (shared_->abilities().resumes && !own.position.empty())
    if (auto loaded = shared_->load_position(own.position); !loaded)
      anew("this peer's data", loaded.error());
  if (shared_->abilities().resumes)
    position_ = shared_->position();
  kept = own;
  kept.partial = {}; // the model takes it
  if (!own.pending && !own.partial.sum)
    return;
  waggle::status fits{waggle::done{}}; // actors have a `done` of their own
  if (!shared_->abilities().resumes)
    fits = failure{ec::malformed, "this model cannot resume it"};
  else if (own.pending && own.pending->size() > shared_->gradient_count()) // or of a fragment
    fits = failure{ec::malformed, "its contribution has another length than the model's"};
  else if (own.partial.sum)
    fits = shared_->load_gradient(own.partial);
  if (!fits) {
    kept.pending = nullptr;
    kept.pending_samples = own.samples();
    return anew("the epoch", fits.error());
  }
  if (own.samples() > 0)
    ctx_.log->info("continues with {} samples of an unfinished epoch", own.samples());
}

void model_worker::pass(const run_pass& msg) {
  if (!model_)
    return;
  auto began = clock().now();
  shared_->at_epoch(model_->epoch());
  auto step =
    msg.in_buckets ? shared_->accumulate_in_buckets(soon_over(began)) : shared_->accumulate();
  if (msg.rate && step.finite && step.why.code == ec::none)
    model_->step_locally(*msg.rate);
  if (msg.rate && shared_->abilities().resumes)
    position_ = shared_->position();
  auto seconds = seconds_of(clock().now() - began);
  smooth(pass_seconds_, seconds);
  ctx_.metrics->observe_step("forward_backward", seconds);
  send(listener_, pass_done{step, seconds});
}

/// The other members are not to wait for this peer's values much longer than for those of others:
/// they take a member that keeps them waiting to be slow (patience.hpp).
learner::early_gradient model_worker::soon_over(steady_time began) {
  static_assert(offered_before < patience_with_slow);
  return {[this, began] {
            auto left = pass_seconds_ - seconds_of(clock().now() - began);
            return pass_seconds_ > 0 && left < seconds_of(offered_before);
          },
          [this] { send(listener_, gradient_offered{}); }};
}

parameter_sample model_worker::compared() {
  bool is_window = shared_->parameter_count() > sampled_values_max;
  auto sample = sample_parameters(*shared_, model_->epoch(), sampled_values_max, is_window);
  if (sample.hash == not_finite_sample())
    return sample;
  if (!is_window)
    sample.hash = model_->parameters(); // which may be known already
  sample.sketch.rounding = rounding_;
  return sample;
}

void model_worker::apply(const apply_update& update) {
  if (!model_)
    return;
  auto began = clock().now();
  const auto& what = update.what;
  auto mean = what.mean ? std::span<const float>{*what.mean} : std::span<const float>{};
  auto given = what.snapshot ? std::span<const float>{*what.snapshot} : std::span<const float>{};
  if (what.mean && update.averaged)
    model_->add_change(*update.averaged, mean, given, update.after);
  else
    model_->step(mean, what.rate, update.after, given, what.by);
  if (!what.position.empty())
    position_ = what.position;
  last_.reset();
  evaluate_if_due();
  ctx_.metrics->observe_step("optimizer", seconds_of(clock().now() - began));
  auto sample = compared();
  send(listener_,
       update_applied{model_->epoch(), sample.hash, shared_->plateau_state(), sample.sketch});
}

/// At the end of an epoch. The weights are copied here; another thread measures them.
void model_worker::evaluate_if_due() {
  auto epoch = model_->epoch();
  bool last =
    evaluation_
    && (epoch == evaluation_->last || (evaluation_->ended && evaluation_->ended(*shared_)));
  bool early = evaluated_at_ != steady_time{} && clock().now() - evaluated_at_ < evaluation_->every;
  if (!evaluates_ || (!last && (evaluating_ || early)))
    return;
  evaluating_ = true;
  auto weights = std::make_shared<const float_vector>(weights_of(*shared_));
  auto ended = [this] {
    evaluating_ = false;
    evaluated_at_ = clock().now();
  };
  request(evaluates_, evaluation_timeout, evaluate_weights{epoch, std::move(weights)})
    .then(
      [this, ended](const model_evaluated& found) {
        ended();
        send(listener_, found);
      },
      [this, ended](const caf::error& why) {
        ended();
        if (!*stop_)
          ctx_.log->warn("the weights were not evaluated: {}", to_string(why));
      });
}

void model_worker::load(const load_image& msg) {
  image_loaded outcome;
  if (auto loaded = model_->load_from(*msg.image, {msg.branch, msg.epoch_max}); !loaded)
    outcome.why = loaded.error();
  else if (shared_->abilities().resumes)
    position_ = shared_->position(); // no earlier sample will enter this state
  last_.reset();
  outcome.epoch = model_->epoch();
  outcome.past = model_->past();
  auto sample = compared();
  outcome.parameters = sample.hash;
  outcome.sketch = sample.sketch;
  outcome.plateau = shared_->plateau_state();
  if (outcome.why.code == ec::none)
    evaluate_if_due();
  send(listener_, std::move(outcome));
}

/// Fails if there is no room for the copy.
result<std::shared_ptr<model_copy>> model_worker::copy() {
  WAGGLE_TRY(store, ctx_.make_store());
  auto began = clock().now();
  auto copied = model_->copy_state(std::move(*store));
  ctx_.metrics->observe_step("state_copy", seconds_of(clock().now() - began));
  if (!copied)
    return copied.error();
  return std::make_shared<model_copy>(*std::move(copied));
}

caf::result<state_snapshot> model_worker::checkpoint(const save_checkpoint& msg) {
  if (!model_ || !checkpoints_)
    return to_caf(ec::not_ready, "no checkpoints are kept");
  auto copied = copy();
  if (!copied) {
    ctx_.metrics->count_checkpoint_failed();
    return to_caf(copied.error());
  }
  auto& own = (*copied)->own;
  if (msg.unfinished) {
    auto state = std::move(own.own);
    own = *msg.unfinished;
    own.own = std::move(state);
    own.stopped = true;
  }
  own.run = run_tag(ctx_.run_id);
  own.position = position_;
  if (own.stopped && shared_->abilities().resumes) {
    own.position = shared_->position();
    own.partial = shared_->copy_gradient();
  }
  auto promise = make_response_promise<state_snapshot>();
  request(keeper_, seal_timeout, seal_copy{std::move(*copied), shared_, true})
    .then([promise](const state_snapshot& made) mutable { promise.deliver(made); },
          [promise](const caf::error& why) mutable { promise.deliver(why); });
  return promise;
}

caf::result<state_snapshot> model_worker::snapshot(const get_state_snapshot& wanted) {
  if (!model_)
    return to_caf(ec::not_ready, "there is no model yet");
  const auto& past = model_->past();
  // A branch that forked from the wanted one does not count: it may have forked before the wanted
  // epoch.
  if (!wanted.branch.is_zero() && wanted.branch != past.branch)
    return to_caf(ec::wrong_run, "this peer's state is of another history");
  if (model_->epoch() < wanted.epoch_min)
    return to_caf(ec::epoch_mismatch, "this peer's state is older");
  if (last_)
    return *last_;
  auto promise = make_response_promise<state_snapshot>();
  auto epoch = model_->epoch();
  if (making_ && making_->epoch == epoch && making_->past == past) {
    making_->promises.push_back(promise);
    return promise;
  }
  auto copied = copy();
  if (!copied) {
    ctx_.log->warn("cannot copy the state for others: {}", to_string(copied.error()));
    promise.deliver(to_caf(copied.error()));
    return promise;
  }
  making_ = std::make_shared<waiting_snapshot>(waiting_snapshot{epoch, past, {promise}});
  // A snapshot of the next epoch may be requested before this one is done, so each
  // `waiting_snapshot` holds its own requests.
  request(keeper_, seal_timeout, seal_copy{std::move(*copied), shared_, false})
    .then(
      [this, asked = making_](const state_snapshot& made) {
        if (making_ == asked)
          making_.reset();
        if (model_->epoch() == asked->epoch && model_->past() == asked->past)
          last_ = made;
        for (auto& p : asked->promises)
          p.deliver(made);
      },
      [this, asked = making_](const caf::error& why) {
        if (making_ == asked)
          making_.reset();
        for (auto& p : asked->promises)
          p.deliver(why);
      });
  return promise;
}

} // namespace waggle
