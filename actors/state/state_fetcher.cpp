// fetch_state ─► donor 1: open_state ─► offer ─► get_state_chunk × window ─► … ─► hash ─► fetched_state
//                   └ lost, silent, slow, no such state ─► donor 2, with the chunks received so far ─► …
// compare: donors 1 … n: open_state ─► state_vote ─► those that offer the state of most, as above

#include "actors/state/state_fetcher.hpp"

#include "actors/guard.hpp"
#include "runtime/core/log_about.hpp"
#include "runtime/core/try.hpp"
#include "runtime/crypto/digest.hpp"
#include "runtime/training/state_table.hpp"
#include "runtime/training/training_state.hpp"

namespace waggle {

namespace {

state_offer offer_of(const wire::state_header& header) {
  return {header.epoch, header.content, header.parameters, header.bytes, header.chunk_bytes};
}

} // namespace

state_fetcher::state_fetcher(caf::actor_config& cfg, node_context ctx, fetch_config config,
                             switchboard_actor switchboard)
  : state_fetcher_base(cfg), ctx_(std::move(ctx)), config_(config),
    switchboard_(std::move(switchboard)), download_(config.download, ctx_.make_store),
    pace_time_(config.pace_time) {
  end_on_exception(this, ctx_);
}

void state_fetcher::on_exit() {
  if (promise_.pending() && what_.owner.is_zero()) // nobody wants the state any more
    ctx_.metrics->count_state_not_loaded("failed");
  demonitor(caller_); // else the caller keeps this actor's memory as long as it lives
  promise_ = {};
  switchboard_ = nullptr;
}

state_fetcher::behavior_type state_fetcher::make_behavior() {
  set_down_handler([this](const caf::down_msg&) { quit(); });
  return {
    [this](const fetch_state& msg) { return fetch(msg); },
    [this](offers_late) {
      if (vote_ && vote_->outcome() == state_vote::standing::open) {
        vote_->hurry();
        ask_for_offers();
      }
    },
    [this](const check_donor& msg) { check_deadline(msg.attempt); },
    [this](fetch_expired) {
      if (config_.slow && donor_.id != peer_id{})
        config_.slow->push_back(donor_.id);
      end({ec::timeout, "the download did not end by its deadline"});
    },
  };
}

caf::result<fetched_state> state_fetcher::fetch(const fetch_state& msg) {
  if (std::exchange(busy_, true))
    return to_caf(ec::overloaded, "one download at a time");
  monitor(current_sender()); // without the caller nothing needs the state
  caller_ = caf::actor_cast<caf::actor_addr>(current_sender());
  what_ = msg;
  donors_ = {msg.donors.begin(), msg.donors.end()};
  began_ = clock().now();
  auto promise = promise_ = make_response_promise<fetched_state>();
  delayed_send(this, msg.deadline, fetch_expired{});
  if (config_.compare != state_comparison::none && donors_.size() > 1) {
    vote_.emplace(std::exchange(what_.donors, {}), msg.epoch_min, config_.compare, config_.rounded);
    donors_.clear();
    delayed_send(this, config_.offer_patience, offers_late{});
    ask_for_offers();
  } else {
    next_donor();
  }
  return promise;
}

// -- which state ----------------------------------------------------------------------------------

void state_fetcher::ask_for_offers() {
  for (auto& question : vote_->next())
    request(switchboard_, config_.open_timeout + 1s,
            call_peer{question.donor, wire::open_state{what_.branch, question.epoch_min},
                      config_.open_timeout})
      .then(
        [this, who = question.donor.id](const peer_answer& answer) {
          const auto* header = std::get_if<wire::state_header>(&answer.what);
          if (header == nullptr)
            vote_->refused(who, {ec::protocol_violation, "no header"});
          else if (auto good = check(who, offer_of(*header)); !good)
            vote_->refused(who, good.error());
          else
            vote_->offered(who, offer_of(*header));
          on_offers();
        },
        [this, who = question.donor.id](const caf::error& why) {
          log_about about{{.remote = who, .reason = from_caf(why).code}};
          log_caused(spdlog::level::info,
                     "no state from peer " + short_name(who) + ": " + to_string(from_caf(why)));
          vote_->refused(who, from_caf(why));
          on_offers();
        });
}

/// Whether the offer can be the run's state. A donor of one that is too large is suspected.
status state_fetcher::check(const peer_id& donor, const state_offer& offer) const {
  auto good = download_.check(offer);
  if (!good)
    suspect(donor, good.error().code, "it offers " + good.error().detail);
  return good;
}

/// An offer or a refusal has arrived.
void state_fetcher::on_offers() {
  if (donor_.id != peer_id{} || !promise_.pending())
    return; // late: the download has begun, or is over
  switch (vote_->outcome()) {
    case state_vote::standing::open:
      return ask_for_offers();
    case state_vote::standing::failed:
      return end(vote_->why());
    case state_vote::standing::chosen:
      break;
  }
  voters_ = vote_->voters();
  for (const auto& who : vote_->dissenters())
    suspect(who, ec::hash_mismatch, "it offers another state than most of the run");
  next_donor();
}

void state_fetcher::log_caused(spdlog::level::level_enum level, const std::string& what) const {
  ctx_.log_caused("state downloads", clock().now(), level, what);
}

/// The operator is told, and the caller, which asks others for a while.
void state_fetcher::suspect(const peer_id& donor, ec code, std::string_view why) const {
  log_about about{{.remote = donor, .reason = code}};
  log_caused(spdlog::level::warn,
             fmt::format("peer {} is not asked for the run's state for a while: {}",
                         short_name(donor), why));
  ctx_.metrics->count_refused_input(code);
  if (config_.suspects)
    config_.suspects->push_back(donor);
}

// -- its bytes ------------------------------------------------------------------------------------

void state_fetcher::next_donor() {
  download_.interrupted();
  if (!voters_.empty()) {
    auto next = std::move(voters_.front());
    voters_.pop_front();
    donor_ = std::move(next.donor);
    ++attempt_;
    return on_offer(next.offer);
  }
  if (donors_.empty())
    return end(last_, last_.code == ec::hash_mismatch ? "hash_mismatch" : "failed");
  donor_ = donors_.front();
  donors_.pop_front();
  auto attempt = ++attempt_;
  request(switchboard_, config_.open_timeout + 1s,
          call_peer{donor_, wire::open_state{what_.branch, what_.epoch_min, what_.owner},
                    config_.open_timeout})
    .then(
      [this, attempt](const peer_answer& answer) {
        if (attempt != attempt_)
          return;
        const auto* header = std::get_if<wire::state_header>(&answer.what);
        if (header == nullptr)
          return leave_donor({ec::protocol_violation, "no header"});
        auto offer = offer_of(*header);
        auto good = check(donor_.id, offer);
        good ? on_offer(offer) : leave_donor(good.error());
      },
      [this, attempt](const caf::error& why) {
        if (attempt == attempt_)
          leave_donor(from_caf(why));
      });
}

void state_fetcher::leave_donor(const failure& why) {
  log_about about{{.remote = donor_.id, .reason = why.code}};
  log_caused(what_.owner.is_zero() ? spdlog::level::info : spdlog::level::debug,
             "no state from peer " + short_name(donor_.id) + ": " + to_string(why));
  last_ = why;
  ++attempt_;
  next_donor();
}

void state_fetcher::on_offer(const state_offer& offer) {
  if (offer.epoch < what_.epoch_min)
    return leave_donor({ec::epoch_mismatch, "its state is older than the run"});
  if (auto accepted = download_.accept(offer); !accepted)
    return leave_donor(accepted.error());
  if (what_.meter)
    what_.meter->total = offer.bytes;
  resumed_ = download_.progress() > 0;
  last_chunk_ = paced_since_ = clock().now();
  paced_ = 0;
  delayed_send(this, config_.chunk_timeout, check_donor{attempt_});
  ask();
}

void state_fetcher::check_deadline(std::uint64_t attempt) {
  if (attempt != attempt_)
    return;
  auto silent = clock().now() - last_chunk_;
  if (silent >= config_.chunk_timeout)
    return leave_donor({ec::timeout, "no chunk for too long"});
  if (is_too_slow())
    return leave_slow_donor();
  delayed_send(this, config_.chunk_timeout - silent, check_donor{attempt});
}

/// Whether the download would miss its deadline at the donor's latest pace, and another donor is
/// left.
bool state_fetcher::is_too_slow() {
  auto time = clock().now();
  auto measured = seconds_of(time - paced_since_);
  if (time - paced_since_ < pace_time_ || (voters_.empty() && donors_.empty()))
    return false;
  auto missing = static_cast<double>(download_.offer()->bytes) * (1 - download_.progress());
  auto left = seconds_of(began_ + what_.deadline - time);
  bool late = missing * measured > left * static_cast<double>(paced_);
  paced_since_ = time;
  paced_ = 0;
  return late;
}

/// The others may be slower still, so it is asked again after them. It may be this peer's own link
/// that is slow: then the donors must not change ever more often.
void state_fetcher::leave_slow_donor() {
  if (config_.slow)
    config_.slow->push_back(donor_.id);
  if (vote_)
    voters_.push_back({donor_, *download_.offer()});
  else
    donors_.push_back(donor_);
  pace_time_ *= 2;
  leave_donor({ec::timeout, "it is too slow for the deadline"});
}

void state_fetcher::ask() {
  // A chunk waits for those requested before it, so this deadline is long. A donor that delivers
  // nothing is given up earlier, by check_deadline.
  auto patience = config_.chunk_timeout * static_cast<int>(config_.download.window_max);
  for (auto index : download_.next()) {
    wire::get_state_chunk question{download_.offer()->content, index};
    request(switchboard_, patience + 1s, call_peer{donor_, question, patience})
      .then(
        [this, attempt = attempt_, asked = clock().now()](const peer_answer& answer) {
          if (attempt == attempt_)
            on_chunk(answer, asked);
        },
        [this, attempt = attempt_, index](const caf::error& what) {
          auto why = from_caf(what);
          bool later = attempt == attempt_ && why.code == ec::overloaded
                       && download_.postponed(index); // asked for again when others arrive
          if (attempt == attempt_ && !later)
            leave_donor(why);
        });
  }
}

void state_fetcher::on_chunk(const peer_answer& answer, steady_time asked) {
  const auto* chunk = std::get_if<wire::state_chunk>(&answer.what);
  if (chunk == nullptr)
    return leave_donor({ec::protocol_violation, "no chunk"});
  if (auto taken = download_.chunk(chunk->index, answer.body.view(), clock().now() - asked); !taken)
    return leave_donor(taken.error());
  last_chunk_ = clock().now();
  paced_ += answer.body.size;
  if (what_.meter)
    what_.meter->received += answer.body.size;
  ctx_.metrics->count_state_bytes("in", static_cast<double>(answer.body.size));
  ctx_.metrics->set_state_download_progress(download_.progress());
  if (!download_.complete())
    return ask();
  auto offer = *download_.offer();
  auto whole = download_.finish();
  if (!whole && whole.error().code == ec::hash_mismatch && resumed_)
    return start_over(offer);
  if (whole && vote_)
    if (auto same = check_parameters(**whole, offer.parameters); !same)
      whole = same.error();
  if (auto good = whole && what_.check ? what_.check(**whole) : waggle::done{}; !good)
    return leave_donor(good.error());
  if (!whole) {
    if (auto code = whole.error().code; code == ec::hash_mismatch || code == ec::malformed)
      suspect(donor_.id, code, "its bytes are not those that it offered");
    return leave_donor(whole.error());
  }
  log_about about{{.epoch = offer.epoch, .remote = donor_.id}};
  if (what_.owner.is_zero())
    ctx_.log->info("downloaded the state of epoch {} ({} bytes) from peer {}", offer.epoch.value(),
                   offer.bytes, short_name(donor_.id));
  ++attempt_;
  promise_.deliver(
    fetched_state{offer.epoch, offer.parameters, *whole, donor_.id, offer.content, resumed_});
  quit();
}

/// The chunks of several donors do not make up the state, and nobody can tell whose are wrong. One
/// donor alone can be blamed if it happens again.
void state_fetcher::start_over(const state_offer& offer) {
  log_about about{{.epoch = offer.epoch, .remote = donor_.id}};
  log_caused(spdlog::level::info,
             fmt::format("the chunks of several donors do not make up the state of epoch {}: "
                         "downloading it from peer {} alone",
                         offer.epoch.value(), short_name(donor_.id)));
  ++attempt_;
  if (vote_)
    voters_.push_front({donor_, offer});
  else
    donors_.push_front(donor_);
  next_donor();
}

/// Whether the state contains the parameters that were offered, where only those were compared.
status state_fetcher::check_parameters(const byte_source& state, const digest& offered) const {
  if (config_.compare != state_comparison::parameters)
    return waggle::done{};
  WAGGLE_TRY(table, read_table_in(state, state_header_bytes));
  auto begin = state_header_bytes + table->header_bytes();
  auto size = table->shared_count() * sizeof(float);
  if (state.size() < begin + size)
    return failure{ec::malformed, "it is cut off"};
  WAGGLE_TRY(hash, sha256_of(state, begin, size));
  if (*hash != offered)
    return failure{ec::hash_mismatch, "its parameters are not those that it offered"};
  return waggle::done{};
}

void state_fetcher::end(const failure& why, std::string_view outcome) {
  ++attempt_;
  if (what_.owner.is_zero())
    ctx_.metrics->count_state_not_loaded(outcome);
  promise_.deliver(to_caf(why));
  quit();
}

} // namespace waggle
