// How a trainer downloads its group's state, catches up, donates its own state and writes
// checkpoints.

#include <algorithm>
#include <map>

#include "actors/guard.hpp"
#include "actors/training/trainer.hpp"
#include "runtime/state/state_vote.hpp"
#include "runtime/training/parameter_sample.hpp"
#include "runtime/training/training_state.hpp"

namespace waggle {

namespace {

constexpr auto patience_without_state = 2s;
constexpr auto pause_after_distrust = 500ms;
/// The pause after so many states in sequence that were too old when they arrived.
constexpr auto patience_with_old_states = 4s;
constexpr milliseconds checkpoint_timeout = 1h; // to a slow disk
constexpr std::uint64_t epochs_ahead = 2;
constexpr milliseconds slow_pause_min{15'000};
constexpr milliseconds slow_pause_max{600'000};
/// Newcomers compare the states of several donors, which must be of one epoch. A donor waits for
/// an epoch that is so near, or reached in that time, for at most so long. Strangers ask for any.
constexpr std::uint64_t awaited_epochs_near = 16;
constexpr std::uint64_t awaited_epochs_max =
  std::uint64_t{1} << (2 * (state_vote::alignments_max - 1)); // what state_vote::align asks for
constexpr std::size_t awaited_states_max = 64;
constexpr auto awaited_for = 10s;

} // namespace

void trainer::fetch_if_needed() {
  if (!membership_.is_member()) // what was decided before has left the group
    return;
  if (at_.in_step() || fetcher_ || loading_)
    return;
  if (at_.waits_for_group()) {
    // The donor was ahead of our view of the group. The rounds up to its epoch end without us; if
    // they do not end, the donor has left the group.
    if (now() - loaded_at_ >= patience_without_state && !round_runs())
      leave("our group does not reach the epoch of the state that we downloaded");
    return;
  }
  if (now() < fetch_after_)
    return;
  auto holders = membership_.donors(at_.past().branch);
  if (holders.empty()) {
    wait_for("a peer that can give the state of history " + short_name(at_.past().branch));
    if (now() - waits_.since() >= patience_without_state) // the peers that had it have left
      leave("no peer holds the state of its history");
    return;
  }
  wait_for({});
  fetch_began_ = now();
  meter_ = std::make_shared<download_meter>();
  fetch_state question{donors_.among(std::move(holders), now()), at_.past().branch,
                       at_.first_kept(), config_.sync_timeout, meter_};
  auto how = config_.fetch;
  how.suspects = suspects_ = std::make_shared<std::vector<peer_id>>();
  how.slow = std::make_shared<std::vector<peer_id>>();
  auto ask_slow_ones_last = [this, slow = how.slow] {
    for (const auto& who : *slow)
      donors_.ask_last(who, now());
  };
  const auto& table = model_->tensors();
  how.download.bytes_max = state_header_bytes + table.image_bytes();
  // Passes change buffers, and a peer's own steps the statistics of its optimizer.
  if (exact())
    how.compare = table.buffer_count() > 0 || steps_locally() ? state_comparison::parameters
                                                              : state_comparison::content;
  fetcher_ = spawn<state_fetcher>(ctx_, std::move(how), peers_.switchboard);
  auto number = ++fetches_;
  request(fetcher_, config_.sync_timeout + 5s, std::move(question))
    .then(
      [this, number, ask_slow_ones_last](const fetched_state& fetched) {
        ask_slow_ones_last();
        if (number == fetches_)
          on_fetched(fetched);
      },
      [this, number, ask_slow_ones_last](const caf::error& why) {
        ask_slow_ones_last();
        if (number == fetches_)
          on_no_state(from_caf(why));
      });
}

/// Ends the current download, whose result is not needed any more.
void trainer::stop_fetching() {
  if (!fetcher_)
    return;
  send_exit(fetcher_, caf::exit_reason::user_shutdown);
  fetcher_ = nullptr;
  ++fetches_;
}

void trainer::on_fetched(const fetched_state& fetched) {
  fetcher_ = nullptr;
  loading_ = true;
  fetched_bytes_ = fetched.state->size();
  last_donor_ = fetched.donor;
  refuse_suspects();
  fetch_resumed_ = fetched.resumed;
  // The donor may be up to `epochs_ahead` epochs ahead of our view of the group.
  send(worker_,
       load_image{fetched.state, at_.past().branch, epoch_id{at_.epoch().value() + epochs_ahead}});
}

/// Donors that offered another state than the others are not asked for a while.
void trainer::refuse_suspects() {
  for (const auto& who : *suspects_) {
    donors_.refuse(who, now());
    doubts_.show("peer " + short_name(who)
                   + " offered or sent another state than the run's: it is not asked for a while",
                 now());
    show_doubts();
  }
  suspects_->clear();
}

void trainer::on_no_state(const failure& why) {
  fetcher_ = nullptr;
  refuse_suspects();
  ctx_.log->warn("could not download the run's state: {}", to_string(why));
  send(peers_.exporter, state_download_ended{false, why, 0, seconds_of(now() - fetch_began_)});
  fetch_after_ = now() + donors_.failed();
  react();
}

void trainer::on_loaded(const image_loaded& outcome) {
  loading_ = false;
  bool loaded = outcome.why.code == ec::none;
  if (!loaded) { // the model is unchanged
    ctx_.metrics->count_state_not_loaded("refused");
    donors_.refuse(last_donor_, now());
    return on_no_state(outcome.why);
  }
  ctx_.metrics->count_state_loaded(fetch_resumed_, seconds_of(now() - fetch_began_));
  // A gradient belongs to the state that was replaced. Progress has moved to the new one, if it is
  // not too old.
  bool moved = keeps_progress() && outcome.past.branch == at_.held_past().branch
               && outcome.epoch.value() <= model_epoch_.value() + config_.epoch_difference_max;
  if (!moved)
    drop_accumulated("left_out");
  flight_.forget_steps();
  pass_outdated_ = passing_ && !moved; // beside the worker: otherwise it had to end first
  note_plateau(outcome.plateau, outcome.epoch);
  model_epoch_ = outcome.epoch;
  model_parameters_ = outcome.parameters;
  membership_.merged(outcome.epoch);
  loaded_at_ = now();
  download_seconds_ = seconds_of(loaded_at_ - fetch_began_);
  ++status_.state_downloads;
  status_.last_outcome = "state loaded";
  send(peers_.exporter,
       state_download_ended{
         true, {}, fetched_bytes_, seconds_of(now() - fetch_began_), last_donor_, outcome.epoch});
  ctx_.log->info("loaded the state of epoch {} from peer {}; the group is at epoch {}",
                 outcome.epoch.value(), short_name(last_donor_), at_.epoch().value());
  auto follows = at_.take_state(outcome.past, outcome.epoch);
  if (follows.what != run_position::trouble::gap) {
    fetch_after_ = now() + donors_.succeeded(now());
    slow_pause_ = 0ms;
  }
  if (at_.in_step() && at_.epoch() != outcome.epoch
      && follows.apply.empty()) // within the tolerance
    send(worker_, rename_history{at_.past(), at_.epoch()});
  carry(follows);
  react();
}

/// Carries out what follows from the end of an epoch or from a new state: applies updates, or
/// downloads another state.
void trainer::carry(const run_position::outcome& what) {
  for (const auto& step : what.apply)
    apply(step);
  switch (what.what) {
    case run_position::trouble::none:
      break;
    case run_position::trouble::no_room:
      return cannot_keep_up();
    case run_position::trouble::gap:
      fetch_after_ = now() + donors_.failed();
      if (config_.many_groups && fetch_after_ - now() >= patience_with_old_states)
        return cannot_keep_up(); // each state was too old when it arrived
      ctx_.log->info("the downloaded state cannot be brought to epoch {}: downloading another one",
                     at_.epoch().value());
      return;
  }
  if (what.caught_up) {
    wait_for({});
    health_.caught_up();
    show_health();
    ctx_.log->info("in step at epoch {} after {} missed epochs", at_.epoch().value(),
                   what.apply.size());
    report_own_progress();
  } else if (at_.in_step() && !what.apply.empty()) {
    checkpoint_if_due();
  }
  if (too_much_under_way() && membership_.is_member() && !what.caught_up) {
    drop_accumulated("behind");
    leave("during our pass more updates arrived than can be kept");
  }
}

/// The run ends epochs faster than its state can be downloaded. Reports what would help, and
/// pauses, so that the bandwidth is left to other peers for a while.
void trainer::cannot_keep_up() {
  slow_download sum;
  if (meter_) {
    sum.state_bytes = meter_->total;
    sum.received_bytes = meter_->received;
  }
  sum.seconds = seconds_of(now() - fetch_began_);
  sum.epoch_seconds = epoch_seconds_;
  sum.update_bytes = model_->parameter_count() * sizeof(float);
  sum.kept_bytes_max = config_.missed_bytes_max;
  sum.target_batch_size = config_.target_batch_size / strategy_.schedule.epochs_per_round;
  if (auto sentence = health_.download_given_up(sum))
    ctx_.log->warn("{}", *sentence);
  show_health();
  send(peers_.exporter, state_download_ended{false,
                                             {ec::timeout, "the run was faster than the download"},
                                             sum.received_bytes,
                                             sum.seconds});
  leave("it ends epochs faster than we can download its state");
  slow_pause_ = std::clamp<milliseconds>(2 * slow_pause_, slow_pause_min, slow_pause_max);
  membership_.pause_until(now() + slow_pause_);
}

/// Peers at the same epoch of the same history must hold the same parameters. If they do not, the
/// parameters that fewer peers hold are given up, and those that are not finite in any case. What
/// is compared is their parameter_sample.
bool trainer::differs_from_most() {
  if (!exact() || !at_.in_step() || !under_way_.empty() || model_epoch_ != at_.epoch()
      || model_parameters_.is_zero())
    return false;
  std::map<digest, std::size_t> holders{{model_parameters_, 1}};
  std::uint32_t compared = 0;
  std::uint32_t others = 0;
  peer_id first;          // of them
  std::size_t voters = 1; // we
  for (const auto& peer : seen_.progress.peers) {
    if (!membership_.has_a_vote(peer, at_.past().branch))
      continue;
    ++voters;
    if (peer.epoch != model_epoch_ || !peer.claim.ready || peer.parameters.is_zero())
      continue; // has not reported yet
    ++holders[peer.parameters];
    ++compared;
    if (peer.parameters != model_parameters_ && others++ == 0)
      first = peer.who.id;
  }
  if (others != differing_) {
    differing_ = others;
    ctx_.metrics->set_differing_peers(others);
    if (others > 0)
      ctx_.log_caused("other parameters", now(), spdlog::level::err,
                      fmt::format("{} peers, {} among them, hold parameters that differ from ours "
                                  "at epoch {} of history {}",
                                  others, short_name(first), model_epoch_.value(),
                                  short_name(at_.past().branch)));
  }
  // Reports of one epoch arrive one after another: a difference may show after the first of them.
  if (others > 0 && std::exchange(differed_, model_epoch_) != model_epoch_)
    ctx_.metrics->count_state_hash_check("differing");
  else if (compared > 0 && std::exchange(compared_, model_epoch_) != model_epoch_)
    ctx_.metrics->count_state_hash_check("equal");
  if (holders.size() > 1)
    holders.erase(not_finite_sample());
  auto most = std::max_element(holders.begin(), holders.end(), [](const auto& a, const auto& b) {
    return a.second != b.second ? a.second < b.second : b.first < a.first;
  });
  // Until all have reported, only what more than half of them hold decides: the first report may be
  // that of a liar.
  bool decided =
    compared + 1 == voters || 2 * most->second > voters || model_parameters_ == not_finite_sample();
  if (most->first == model_parameters_ || !decided)
    return false;
  ctx_.metrics->count_state_hash_check("minority");
  return true;
}

/// Gives up the own state: another one has to be downloaded.
void trainer::distrust_own_state(const std::string& why) {
  leave(why);
  at_.distrust();
  membership_.pause_until(now() + pause_after_distrust);
}

/// The newest update does not count: a single one must fit, whatever its size.
bool trainer::too_much_under_way() const {
  return !under_way_.empty() && bytes_under_way_ - under_way_.back() > config_.missed_bytes_max;
}

caf::result<state_snapshot> trainer::snapshot(const get_state_snapshot& wanted) {
  if (!model_ || !at_.in_step() || stopping_ || (!membership_.is_member() && at_.past().work == 0))
    return to_caf(ec::not_ready, "this peer has no state of the run yet");
  if (awaits(wanted))
    return await_epoch(wanted);
  merge(); // newcomers have the updates from the group's epoch on
  return delegate(worker_, wanted);
}

/// Whether the request is for an epoch that our group is about to reach.
bool trainer::awaits(const get_state_snapshot& wanted) const {
  if (!exact() || !membership_.is_member() || !at_.in_step() || wanted.branch != at_.past().branch
      || wanted.epoch_min <= at_.epoch() || awaited_states_.size() >= awaited_states_max)
    return false;
  auto ahead = wanted.epoch_min.value() - at_.epoch().value();
  return ahead <= awaited_epochs_near
         || (ahead <= awaited_epochs_max
             && static_cast<double>(ahead) * epoch_seconds_ <= seconds_of(awaited_for));
}

caf::result<state_snapshot> trainer::await_epoch(const get_state_snapshot& wanted) {
  auto promise = make_response_promise<state_snapshot>();
  awaited_states_.push_back({wanted, now() + awaited_for, promise});
  return promise;
}

/// Answers the requests for an epoch that has been reached, or that cannot be reached any more. To
/// be called at each epoch, so that all donors give the state of the same one.
void trainer::give_awaited() {
  for (auto& request : std::exchange(awaited_states_, {})) {
    const auto& wanted = request.wanted;
    bool here =
      membership_.is_member() && at_.in_step() && !stopping_ && wanted.branch == at_.past().branch;
    if (!here || now() >= request.until) {
      request.promise.deliver(to_caf(ec::epoch_mismatch, "this peer's state is older"));
    } else if (wanted.epoch_min > at_.epoch()) {
      awaited_states_.push_back(std::move(request));
    } else {
      merge();
      // The snapshot is made behind the running pass, however long that lasts: the donor that asks
      // has the deadline.
      request.promise.delegate(worker_, wanted);
    }
  }
}

void trainer::checkpoint_if_due() {
  if (!config_.checkpoints || config_.checkpoint_every == 0 || !at_.in_step()
      || at_.epoch().value() % config_.checkpoint_every != 0
      || now() - checkpointed_ < config_.checkpoint_interval)
    return;
  if (std::exchange(checkpointing_, true)) // a slow disk: copies must not accumulate
    return;
  checkpointed_ = now();
  request(worker_, checkpoint_timeout, save_checkpoint{})
    .then([this](const state_snapshot&) { checkpointing_ = false; }, // the keeper logs failures
          [this](const caf::error& why) {
            checkpointing_ = false;
            ctx_.log->warn("no checkpoint was written: {}", to_string(from_caf(why)));
          });
}

} // namespace waggle
