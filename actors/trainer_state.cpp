// How a trainer takes the state of its group, catches up, gives its own away and keeps it.

#include "actors/guard.hpp"
#include "actors/trainer.hpp"

namespace waggle {

namespace {

constexpr auto patience_without_state = 2s;

} // namespace

void trainer::fetch_if_needed() {
  if (in_step_ || fetching_ || loaded_ || now() < fetch_after_)
    return;
  std::vector<peer_record> holders;
  for (const auto& peer : view_.peers)
    if (peer.who.id != ctx_.record.id && peer.claim.ready && peer.claim.group_size > 0
        && peer.claim.line.branch == line_.branch)
      holders.push_back(peer.who);
  if (holders.empty()) {
    wait_for("a peer that can give the state of history " + short_name(line_.branch));
    if (now() - waiting_since_ >= patience_without_state) // whoever had it has left
      leave("nobody holds the state of its history");
    return;
  }
  wait_for({});
  fetching_ = true;
  fetch_began_ = now();
  epoch_id first{epoch_.value() - missed_.size()};
  fetch_state question{donors_.among(std::move(holders)), line_.branch, first,
                       config_.sync_timeout};
  auto fetcher = spawn(state_fetcher, ctx_, config_.fetch, peers_.switchboard);
  auto branch = line_.branch;
  request(fetcher, config_.sync_timeout + 5s, std::move(question))
    .then(
      [this, branch](const fetched_state& fetched) {
        if (place_ == place::member && !in_step_ && line_.branch == branch)
          return on_fetched(fetched);
        fetching_ = false;
        react();
      },
      [this](const caf::error& why) { on_no_state(from_caf(why)); });
}

void trainer::on_fetched(const fetched_state& fetched) {
  fetched_bytes_ = fetched.state->size();
  last_donor_ = fetched.donor;
  send(worker_, load_image{fetched.state});
}

void trainer::on_no_state(const failure& why) {
  fetching_ = false;
  ctx_.log->warn("could not take the run's state: {}", to_string(why));
  send(peers_.exporter, state_download_ended{false, why, 0, seconds_of(now() - fetch_began_)});
  fetch_after_ = now() + donors_.failed();
  react();
}

void trainer::on_loaded(const image_loaded& outcome) {
  if (outcome.why.code != ec::none) {
    donors_.refuse(last_donor_);
    return on_no_state(outcome.why);
  }
  model_epoch_ = outcome.epoch;
  model_parameters_ = outcome.parameters;
  held_ = {outcome.line, outcome.epoch};
  if (place_ == place::member && !in_step_ && outcome.line.branch != line_.branch)
    return on_no_state({ec::wrong_run, "the state is of another history than our group's"});
  fetching_ = false;
  donors_.succeeded();
  ++status_.state_downloads;
  status_.last_outcome = "state loaded";
  send(peers_.exporter,
       state_download_ended{true, {}, fetched_bytes_, seconds_of(now() - fetch_began_)});
  ctx_.log->info("took the state of epoch {} from peer {}; the group is at epoch {}",
                 outcome.epoch.value(), short_name(last_donor_), epoch_.value());
  if (place_ == place::member && !in_step_) {
    loaded_ = held_;
    catch_up();
  } else {
    line_ = held_.line;
    epoch_ = held_.epoch;
  }
  react();
}

/// Applies what the group did since the state that we have loaded.
void trainer::catch_up() {
  if (!loaded_ || loaded_->epoch > epoch_)
    return; // the donor was ahead: the rounds until then end without us
  auto from = *std::exchange(loaded_, std::nullopt);
  auto updates = missed_.take(from.epoch, epoch_);
  if (!updates) {
    ctx_.log->info("the state of epoch {} does not lead to epoch {}: taking another one",
                   from.epoch.value(), epoch_.value());
    fetch_after_ = now() + donors_.failed();
    return;
  }
  auto line = from.line;
  for (const auto& update : *updates) {
    line = update.after(line);
    apply(update, line);
  }
  line_ = line;
  held_ = {line_, epoch_};
  in_step_ = true;
  wait_for({});
  ctx_.log->info("in step at epoch {} after {} missed epochs", epoch_.value(), updates->size());
  tell_progress();
}

caf::result<state_snapshot> trainer::snapshot(const get_state_snapshot& wanted) {
  if (!model_ || !in_step_ || stopping_ || (place_ != place::member && line_.work == 0))
    return to_caf(ec::not_ready, "this peer has no state of the run yet");
  return delegate(worker_, wanted);
}

void trainer::checkpoint_if_due() {
  if (!config_.checkpoints || config_.checkpoint_every == 0 || !in_step_
      || epoch_.value() % config_.checkpoint_every != 0
      || now() - checkpointed_ < config_.checkpoint_interval)
    return;
  checkpointed_ = now();
  request(worker_, config_.sync_timeout, save_checkpoint{})
    .then([](const state_snapshot&) { /* it is on the disk, or the keeper said why not */ },
          [this](const caf::error& why) {
            ctx_.log->warn("no checkpoint was written: {}", to_string(from_caf(why)));
          });
}

} // namespace waggle
