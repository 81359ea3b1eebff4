// The state of a trainer's model: how it is downloaded, brought to the group's epoch, compared,
// donated, and kept in checkpoints.

#include <algorithm>

#include "actors/guard.hpp"
#include "actors/training/trainer.hpp"
#include "runtime/averaging/part_reducer.hpp"
#include "runtime/core/log_about.hpp"
#include "runtime/status/run_curves.hpp"
#include "runtime/training/training_state.hpp"

namespace waggle {

namespace {

constexpr auto patience_without_state = 2s;
constexpr auto pause_after_distrust = 500ms;
constexpr milliseconds checkpoint_timeout = 1h; // to a slow disk
constexpr milliseconds residual_timeout = 5s;   // an actor of this process copies a vector
constexpr milliseconds curves_timeout = 30s;
constexpr std::size_t curves_asked_max = 3; // peers

} // namespace

void trainer::fetch_if_needed() {
  if (!membership_.is_member()) // what was decided before has left the group
    return;
  if (at_.in_step() || sync_.busy())
    return;
  if (at_.waits_for_group()) {
    // The donor was ahead of our view of the group. The rounds up to its epoch end without us; if
    // they do not end, the donor has left the group.
    if (now() - sync_.loaded_at() >= patience_without_state && !round_runs())
      leave("our group does not reach the epoch of the state that we downloaded");
    return;
  }
  if (!sync_.may_ask(now()))
    return;
  auto holders = membership_.donors(at_.past().branch);
  if (holders.empty()) {
    wait_for("a peer that can give the state of history " + short_name(at_.past().branch));
    if (now() - report_.waits_since() >= patience_without_state) // the peers that had it have left
      leave("no peer holds the state of its history");
    return;
  }
  wait_for({});
  auto how = config_.fetch;
  const auto& table = model_->tensors();
  how.download.bytes_max = state_header_bytes + table.image_bytes();
  // Passes change buffers, and a peer's own steps the statistics of its optimizer.
  if (exact())
    how.compare = table.buffer_count() > 0 || steps_locally() ? state_comparison::parameters
                                                              : state_comparison::content;
  how.rounded = exact() && vote_.rounds_unlike(membership_.voters(at_.past().branch)) != nullptr;
  request_state(
    this, ctx_, peers_.switchboard, sync_, request_, std::move(how),
    {std::move(holders), at_.past().branch, at_.first_kept(), config_.sync_timeout, nullptr},
    [this](const fetched_state& fetched, const std::vector<peer_id>& suspects) {
      show_suspects(suspects);
      // The donor may be up to `state_sync::epochs_ahead` epochs ahead of our view of the group.
      send(worker_, load_image{fetched.state, at_.past().branch,
                               epoch_id{at_.epoch().value() + state_sync::epochs_ahead}});
    },
    [this](const failure& why, const std::vector<peer_id>& suspects) {
      show_suspects(suspects);
      on_no_state(why);
    });
}

/// Donors that offered another state than the others are not asked for a while.
void trainer::show_suspects(const std::vector<peer_id>& suspects) {
  for (const auto& who : suspects) {
    doubts_.show("peer " + short_name(who)
                   + " offered or sent another state than the run's: it is not asked for a while",
                 now());
    show_doubts();
  }
}

void trainer::on_no_state(const failure& why) {
  log_about about{{.epoch = at_.epoch(), .reason = why.code}};
  ctx_.log->warn("could not download the run's state: {}", to_string(why));
  send(peers_.exporter, state_download_ended{false, why, 0, sync_.seconds(now())});
  react();
}

void trainer::on_loaded(const image_loaded& outcome) {
  if (outcome.why.code != ec::none) { // the model is unchanged
    sync_.refused_state(now());
    ctx_.metrics->count_state_not_loaded("refused");
    return on_no_state(outcome.why);
  }
  sync_.loaded(now());
  const auto& download = sync_.last();
  ctx_.metrics->count_state_loaded(download.resumed, sync_.took());
  // A gradient belongs to the state that was replaced. Progress has moved to the new one, if it is
  // not too old.
  bool moved = keeps_progress() && outcome.past.branch == at_.held_past().branch
               && outcome.epoch.value() <= vote_.epoch().value() + config_.epoch_difference_max;
  if (!moved)
    drop_accumulated("left_out");
  flight_.forget_steps();
  recall();
  pass_.outdated = pass_.runs && !moved; // beside the worker: otherwise it had to end first
  show_model(outcome.plateau, outcome.epoch);
  vote_.hold(outcome.epoch, outcome.parameters, outcome.sketch);
  membership_.merged(outcome.epoch);
  ++report_.status.state_downloads;
  report_.status.last_outcome = "state loaded";
  send(peers_.exporter,
       state_download_ended{true, {}, download.bytes, sync_.took(), download.donor, outcome.epoch});
  log_about about{{.epoch = outcome.epoch, .remote = download.donor, .seconds = sync_.took()}};
  ctx_.log->info("loaded the state of epoch {} from peer {}; the group is at epoch {}",
                 outcome.epoch.value(), short_name(download.donor), at_.epoch().value());
  auto follows = at_.take_state(outcome.past, outcome.epoch);
  if (follows.what != run_position::trouble::gap)
    sync_.is_of_use(now());
  if (at_.in_step() && at_.epoch() != outcome.epoch
      && follows.apply.empty()) // within the tolerance
    send(worker_, rename_history{at_.past(), at_.epoch()});
  if (auto seen = ctx_.curves ? ctx_.curves->last() : std::optional{outcome.epoch};
      !seen || *seen < outcome.epoch) {
    auto whom = membership_.donors(at_.past().branch);
    std::ranges::stable_partition(whom,
                                  [&](const auto& peer) { return peer.id == download.donor; });
    whom.resize(std::min(whom.size(), curves_asked_max));
    ask_for_curves({whom.begin(), whom.end()}, seen, outcome.epoch);
  }
  carry(follows);
  react();
}

/// Of the epochs that we have not seen. A peer that does not train has none.
void trainer::ask_for_curves(std::deque<peer_record> whom, std::optional<epoch_id> after,
                             epoch_id until) {
  if (whom.empty())
    return;
  auto to = whom.front();
  whom.pop_front();
  auto ask_next = [this, whom, after, until, peer = to.id](const failure& why) {
    log_about about{{.remote = peer, .reason = why.code}};
    ctx_.log_caused("curves", now(), spdlog::level::info,
                    "no curves of the run from peer " + short_name(peer) + ": " + to_string(why));
    ask_for_curves(whom, after, until);
  };
  request(peers_.switchboard, curves_timeout + 1s,
          call_peer{std::move(to), wire::get_state_chunk{}, curves_timeout})
    .then(
      [this, ask_next, after, until](const peer_answer& answer) {
        auto image = as_string_view(answer.body.view());
        if (auto taken = ctx_.curves->take(image, after, until, ctx_.wall->now()); !taken)
          ask_next(taken.error());
      },
      [ask_next](const caf::error& why) { ask_next(from_caf(why)); });
}

/// Merges the result of the last round into the model, if that has not happened yet.
void trainer::merge() {
  if (!awaits_merge())
    return;
  auto age = report_.status.steps - flight_.round()->begun;
  auto ended = flight_.take_result();
  if (ended.counted)
    report_.status.mean_age = age;
  settle(ended.counted, ended.why_dropped);
  carry(ended.follows);
}

/// Carries out what follows from the end of an epoch or from a new state: applies updates, or
/// downloads another state.
void trainer::carry(const run_position::outcome& what) {
  log_about about{{.epoch = at_.epoch()}};
  for (const auto& step : what.apply)
    apply(step);
  switch (what.what) {
    case run_position::trouble::none:
      break;
    case run_position::trouble::no_room:
      return cannot_keep_up();
    case run_position::trouble::gap:
      if (sync_.was_too_old(now()) && config_.many_groups)
        return cannot_keep_up();
      ctx_.log->info("the downloaded state cannot be brought to epoch {}: downloading another one",
                     at_.epoch().value());
      return;
  }
  if (what.caught_up) {
    wait_for({});
    report_.catch_up();
    ctx_.log->info("in step at epoch {} after {} missed epochs", at_.epoch().value(),
                   what.apply.size());
    report_own_progress();
  } else if (at_.in_step() && !what.apply.empty()) {
    checkpoint_if_due();
  }
  if (vector_.exceed(config_.missed_bytes_max) && membership_.is_member() && !what.caught_up) {
    drop_accumulated("behind");
    leave("during our pass more updates arrived than can be kept");
  }
}

void trainer::apply(const run_position::step& step) {
  send(worker_, apply_update{step.update, step.after, vector_.ask(step.update)});
}

/// The run ends epochs faster than its state can be downloaded. Reports what would help, and
/// pauses, so that the bandwidth is left to other peers for a while.
void trainer::cannot_keep_up() {
  slow_download sum;
  if (request_.meter) {
    sum.state_bytes = request_.meter->total;
    sum.received_bytes = request_.meter->received;
  }
  sum.seconds = sync_.seconds(now());
  sum.epoch_seconds = progress_.seconds();
  sum.update_bytes = vector_.tensors(at_.epoch()).value_count() * sizeof(float);
  sum.kept_bytes_max = config_.missed_bytes_max;
  sum.target_batch_size = config_.target_batch_size / strategy_.schedule.epochs_per_round;
  if (auto sentence = report_.give_download_up(sum))
    ctx_.log->warn("{}", *sentence);
  send(peers_.exporter, state_download_ended{false,
                                             {ec::timeout, "the run was faster than the download"},
                                             sum.received_bytes,
                                             sum.seconds});
  leave("it ends epochs faster than we can download its state");
  membership_.pause_until(now() + sync_.was_too_slow());
}

/// Compares our parameters with those of the others. What is compared is their
/// parameter_sample.
bool trainer::differs_from_most() {
  if (!exact() || !at_.in_step() || vector_.waiting() > 0 || vote_.epoch() != at_.epoch()
      || vote_.parameters().is_zero())
    return false;
  auto voters = membership_.voters(at_.past().branch);
  if (auto line = report_.show_rounding(vote_.rounds_unlike(voters)))
    ctx_.log->warn("{}", *line);
  auto found = vote_.compare(voters);
  if (auto line = report_.compare(found)) {
    log_about about{{.epoch = vote_.epoch(), .remote = found.first}};
    ctx_.log_caused("other parameters", now(), spdlog::level::err, *line);
  }
  if (found.minority)
    sync_.differs(now());
  return found.minority;
}

/// Copies what the peers average, also in the middle of a pass. Null: it cannot be read now, or it
/// cannot be averaged, and we have left the group.
std::shared_ptr<const float_vector> trainer::copy_parameters() {
  auto copy = vector_.copy(flight_.uncounted_steps(), at_.past().steps);
  if (copy && !all_finite(*copy) && membership_.members().size() > 1) {
    ctx_.metrics->count_nonfinite("parameters");
    distrust_own_state("our parameters are not finite: a lower --lr may help");
    return nullptr;
  }
  return copy;
}

/// Gives up the own state: another one has to be downloaded.
void trainer::distrust_own_state(const std::string& why) {
  leave(why);
  at_.distrust();
  membership_.pause_until(now() + pause_after_distrust);
}

caf::result<state_snapshot> trainer::snapshot(const get_state_snapshot& wanted) {
  if (!wanted.owner.is_zero())
    return give_left(wanted);
  if (!model_ || !at_.in_step() || stop_.begun
      || (!membership_.is_member() && at_.past().work == 0))
    return to_caf(ec::not_ready, "this peer has no state of the run yet");
  if (notice_.begun() && !membership_.donors(at_.past().branch).empty())
    return to_caf(ec::not_ready, "this peer is about to leave the run: others have its state");
  if (exact() && membership_.is_member() && wanted.branch == at_.past().branch
      && awaited_.awaits(wanted.epoch_min, at_.epoch(), progress_.seconds())) {
    auto promise = make_response_promise<state_snapshot>();
    awaited_.add(wanted.branch, wanted.epoch_min, {wanted, promise}, now());
    return promise;
  }
  merge(); // newcomers have the updates from the group's epoch on
  return delegate(worker_, wanted);
}

void trainer::give_awaited() {
  bool here = membership_.is_member() && at_.in_step() && !stop_.begun;
  for (auto& [request, reached] :
       awaited_.take(here ? at_.past().branch : digest{}, at_.epoch(), now())) {
    if (!reached) {
      request.promise.deliver(to_caf(ec::epoch_mismatch, "this peer's state is older"));
      continue;
    }
    merge();
    // The snapshot is made behind the running pass, however long that lasts: the donor that asks
    // has the deadline.
    request.promise.delegate(worker_, request.wanted);
  }
}

void trainer::checkpoint_if_due() {
  if (!config_.checkpoints || config_.checkpoint_every == 0 || !at_.in_step()
      || at_.epoch().value() % config_.checkpoint_every != 0
      || now() - checkpoint_.begun < config_.checkpoint_interval)
    return;
  if (std::exchange(checkpoint_.busy, true)) // a slow disk: copies must not accumulate
    return;
  checkpoint_.begun = now();
  request(worker_, checkpoint_timeout, save_checkpoint{})
    .then([this](const state_snapshot&) { checkpoint_.busy = false; }, // the keeper logs failures
          [this](const caf::error& why) {
            checkpoint_.busy = false;
            ctx_.log->warn("no checkpoint was written: {}", to_string(from_caf(why)));
          });
}

/// Prepares the last checkpoint: its state, and the samples that are in no state yet. They are kept
/// if this peer's own state is the one to which they belong; otherwise they are dropped.
void trainer::keep_unfinished() {
  stop_.keeps = config_.checkpoints && !averages_parameters() && !config_.auxiliary && at_.in_step()
                && !loads() && !(pass_.runs && pass_.outdated) && model_->abilities().resumes
                && model_->abilities().keeps_gradient;
  const auto* given = flight_.given();
  if (stop_.keeps && awaits_merge() && given != nullptr)
    // Nobody else has this update. Applied now, it would be in the rest of the epoch's gradients,
    // which it would not be without the stop.
    flight_.hold_again();
  else
    merge();
  if (averages_parameters()) // the state has the local steps of this epoch
    flight_.count_again();
  stop_.keeps = stop_.keeps && at_.in_step();
  if (!stop_.keeps)
    drop_accumulated("stopped");
  given = flight_.given();
  if (given != nullptr && (!stop_.keeps || !given->from_state || given->samples == 0))
    drop_contribution("stopped");
}

void trainer::save_and_answer() {
  request(peers_.averager, residual_timeout, get_residual{})
    .then([this](const group_residual& left) { save_and_answer(left); },
          [this](const caf::error& why) {
            ctx_.log->warn("the errors of the codecs are not kept: {}", to_string(from_caf(why)));
            save_and_answer(group_residual{});
          });
}

void trainer::save_and_answer(const group_residual& left) {
  auto last = std::make_shared<own_progress>();
  if (left.history == at_.held_past().branch)
    last->residual = left.values;
  flight_.save(*last, steps_locally());
  auto answer = [this](bool kept) {
    if (stop_.keeps && !kept) {
      drop_accumulated("stopped");
      drop_contribution("stopped");
    }
    stop_.keeps = stop_.keeps && kept;
    if (auto samples = current_status().samples_toward_epoch; stop_.keeps && samples > 0)
      ctx_.log->info("{} samples of the unfinished epoch are kept for the next start", samples);
    for (auto& promise : std::exchange(stop_.answers, {}))
      promise.deliver(current_status());
    if (stop_.why.code != ec::none)
      quit(to_caf(stop_.why));
  };
  request(worker_, config_.sync_timeout, save_checkpoint{std::move(last)})
    .then([answer](const state_snapshot& made) { answer(made.kept); },
          [this, answer](const caf::error& why) {
            if (config_.checkpoints)
              ctx_.log->warn("no checkpoint was made at the stop: {}", to_string(from_caf(why)));
            answer(false);
          });
}

} // namespace waggle
