// What only one peer has (left_progress), from its leave by a notice until it is back:
//
//   it leaves:  get_residual ─► seal_left ─► a neighbour: open_state{leaves} ─► goodbye
//   others:     get_state_snapshot{leaves} ─► state_fetcher, from it ─► kept
//   it is back: peer_connected ─► that one: open_state{leaves} ─► it, or --instead-of
//               ─► recall ─► state_fetcher, from one after another ─► open_left ─► the first pass

#include "actors/guard.hpp"
#include "actors/training/trainer.hpp"
#include "runtime/core/log_about.hpp"
#include "runtime/core/try.hpp"

namespace waggle {

namespace {

constexpr milliseconds own_copy_timeout = 5s; // an actor of this process copies a vector
constexpr milliseconds left_timeout = 100s;   // below that of a donor (left_timeout)
constexpr milliseconds pass_patience = 10s;   // later, what comes is merged into what goes on
constexpr std::size_t told_max = 8;

} // namespace

/// Whether it is on its way to a neighbour: the last that this peer does before it leaves.
bool trainer::hands_over(const unfinished_work& left) {
  bool ready = left.samples == 0 && !left.pass_runs && !left.round_runs && !left.only_donor
               && !left.alone && membership_.is_member() && at_.in_step();
  if (ready && left_.handed == left_state::at::none) {
    left_.handed = left_state::at::asked;
    request(peers_.averager, own_copy_timeout, get_residual{})
      .then([this](const group_residual& kept) { hand_over(kept); },
            [this](const caf::error& why) {
              ctx_.log->warn("the errors of the codecs are lost: {}", to_string(from_caf(why)));
              hand_over({});
            });
  }
  return left_.handed == left_state::at::asked;
}

/// The worker's thread hashes the vector.
void trainer::hand_over(const group_residual& kept) {
  own_progress what;
  auto branch = at_.past().branch;
  what.residual = kept.values && kept.history == branch ? kept.values : left_.residual;
  if (model_->abilities().resumes)
    what.position = model_->position();
  if (what.empty())
    return hand_over_to({}, {});
  auto text = std::make_shared<std::string>();
  auto made = std::make_shared<state_snapshot>();
  made->epoch = at_.epoch();
  auto job = [=, ctx = ctx_]() -> std::shared_ptr<const float_vector> {
    auto store = ctx.make_store();
    auto content = store ? seal_left(what, *ctx.self, ctx.run_id, branch, **store) : store.error();
    if (content) {
      made->state = *store;
      made->content = *content;
      *text = text_of(what);
    } else {
      ctx.log->warn("what only this peer has is lost: {}", to_string(content.error()));
    }
    return nullptr;
  };
  request(worker_, left_timeout, run_job{std::move(job)})
    .then(
      [=, this](const job_done&) {
        if (!made->state)
          return hand_over_to({}, {});
        left_.own = *made;
        auto to = neighbours_of(ctx_.record.id, membership_.donors(branch));
        hand_over_to({to.begin(), to.end()}, *text);
      },
      [this](const caf::error&) { hand_over_to({}, {}); }); // no time is left
}

void trainer::hand_over_to(std::deque<peer_record> neighbours, const std::string& what) {
  auto time = notice_.left(now());
  if (neighbours.empty() || time <= 0ms) {
    left_.handed = left_state::at::over;
    return react();
  }
  time = std::max<milliseconds>(time / static_cast<int>(neighbours.size()),
                                std::min(time, milliseconds{1s}));
  auto to = std::move(neighbours.front());
  neighbours.pop_front();
  auto ask_next = [this, neighbours, what, who = to.id](const failure& why) {
    log_about about{{.remote = who, .reason = why.code}};
    ctx_.log->warn("peer {} does not keep {} of this peer: {}", short_name(who), what,
                   to_string(why));
    hand_over_to(neighbours, what);
  };
  wire::open_state question{at_.past().branch, left_.own->epoch, ctx_.record.id, true};
  request(peers_.switchboard, time + 1s, call_peer{to, question, time})
    .then(
      [this, ask_next, what, who = to.id](const peer_answer& answer) {
        const auto* header = std::get_if<wire::state_header>(&answer.what);
        if (header == nullptr || header->content != left_.own->content)
          return ask_next({ec::protocol_violation, "it has something else"});
        ctx_.log->info("what only this peer has is with peer {} until it comes back: {}",
                       short_name(who), what);
        hand_over_to({}, what);
      },
      [ask_next](const caf::error& why) { ask_next(from_caf(why)); });
}

/// To a neighbour that gets it from us, or to whoever comes back; or another one leaves it here.
caf::result<state_snapshot> trainer::give_left(const get_state_snapshot& wanted) {
  auto snapshot_of = [](const left_progress::entry& what) {
    return state_snapshot{{}, {}, what.bytes, {}, what.content};
  };
  if (wanted.owner == ctx_.record.id && wanted.leaves) { // that one has what this peer has left
    if (++left_.told <= told_max)
      left_.holders.push_back(wanted.from);
    if (model_ && at_.in_step())
      recall();
    return to_caf(ec::not_ready, "this peer asks for it");
  }
  if (left_.own && wanted.owner == ctx_.record.id)
    return *left_.own;
  if (!wanted.leaves) {
    auto found = left_.others.give(wanted.owner, wanted.branch, wanted.from.id, now());
    if (!found)
      return to_caf(found.error());
    ctx_.log->info("peer {} gets what peer {} had alone", short_name(wanted.from.id),
                   short_name(wanted.owner));
    return snapshot_of(*found);
  }
  if (!model_ || notice_.begun() || stop_.begun || !membership_.has(wanted.owner))
    return to_caf(ec::no_donor, "this peer leaves, too, or is in another group");
  if (auto room = left_.others.expect(wanted.owner, now()); !room)
    return to_caf(room.error());
  auto promise = make_response_promise<state_snapshot>();
  fetch_left(wanted.owner, {wanted.from}, nullptr,
             [this, wanted, promise, snapshot_of](const result<fetched_state>& got) mutable {
               if (!got) {
                 left_.others.drop(wanted.owner);
                 promise.deliver(to_caf(got.error()));
                 return;
               }
               left_progress::entry what{wanted.branch, wanted.epoch_min, got->content, got->state};
               left_.others.keep(wanted.owner, what, now());
               ctx_.log_caused("left progress", now(), spdlog::level::info,
                               fmt::format("keeps what peer {}, which leaves, had alone, for an "
                                           "hour: {} bytes",
                                           short_name(wanted.owner), got->state->size()));
               promise.deliver(snapshot_of(what));
             });
  return promise;
}

/// The first pass waits for it for a moment: this peer goes on as after a restart. A neighbour can
/// give anything, so the next one is asked until the owner's signature is there.
void trainer::recall() {
  if (left_.recalled != left_state::at::none || notice_.begun())
    return;
  bool begins = report_.status.steps == 0 && !pass_.runs;
  auto owner = config_.instead_of.is_zero() ? ctx_.record.id : config_.instead_of;
  auto from = std::exchange(left_.holders, {});
  if (begins && !config_.instead_of.is_zero())
    for (const auto& peer : neighbours_of(owner, membership_.donors(at_.past().branch)))
      from.push_back(peer);
  if (from.empty())
    return;
  left_.recalled = left_state::at::asked;
  if (begins && left_.patience == steady_time{})
    left_.patience = now() + pass_patience;
  auto found = std::make_shared<std::pair<own_progress, std::string>>();
  auto check = [=, ctx = ctx_, branch = at_.past().branch,
                values = vector_.value_count()](const byte_source& bytes) -> status {
    WAGGLE_TRY(all, read_all(bytes));
    WAGGLE_TRY(what, open_left(as_string_view(all->view()), owner, ctx.run_id, branch, values,
                               *ctx.verifier));
    *found = {*what, text_of(*what)};
    return waggle::done{};
  };
  fetch_left(owner, std::move(from), check, [=, this](const result<fetched_state>& got) {
    log_about about{{.epoch = at_.epoch(), .remote = got ? got->donor : owner}};
    if (got)
      ctx_.log->info("goes on with what peer {} had left with peer {}: {}", short_name(owner),
                     short_name(got->donor), found->second);
    else
      ctx_.log->warn("nothing of what peer {} had alone is here: {}", short_name(owner),
                     to_string(got.error()));
    on_recalled(got.ok(), found->first);
  });
}

/// Passes have perhaps begun meanwhile. They may run beside the worker, so they wait until it is at
/// the place in the data.
void trainer::on_recalled(bool found, const own_progress& what) {
  auto end = [this, found] {
    left_.recalled = found ? left_state::at::over : left_state::at::none; // others may have it
    react();
  };
  left_.residual = what.residual;
  if (what.position.empty() || !model_->abilities().resumes)
    return end();
  if (report_.status.steps > 0 || pass_.runs) {
    ctx_.log->info("its place in the data comes too late: passes have begun");
    return end();
  }
  left_.patience = steady_time::max();
  request(worker_, left_timeout, resume_at{what.position}).then(end, [end](const caf::error&) {
    end();
  });
}

/// Only its owner can have sealed it, so no offers are compared.
void trainer::fetch_left(const peer_id& owner, std::vector<peer_record> from,
                         std::function<status(const byte_source&)> check,
                         std::function<void(const result<fetched_state>&)> then) {
  auto how = config_.fetch;
  how.download.bytes_max = left_bytes_max(vector_.value_count());
  how.open_timeout = 3s; // it is there, or nowhere; a link of the process before may be asked first
  request(spawn<state_fetcher>(ctx_, std::move(how), peers_.switchboard), left_timeout + 5s,
          fetch_state{
            std::move(from), at_.past().branch, {}, left_timeout, nullptr, owner, std::move(check)})
    .then([then](const fetched_state& got) { then(got); },
          [then](const caf::error& why) { then(from_caf(why)); });
}

} // namespace waggle
