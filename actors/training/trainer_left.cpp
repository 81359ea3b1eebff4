// What only one peer has (left_progress), from its leave by a notice until it is back:
//
//   it leaves:  get_residual ─► seal_left ─► a neighbour: open_state{leaves} ─► goodbye
//   others:     get_state_snapshot{leaver} ─► state_fetcher, from it ─► kept ─► who asks for it, once
//   it is back: on_loaded ─► state_fetcher, from neighbours ─► open_left ─► the first pass

#include "actors/guard.hpp"
#include "actors/training/trainer.hpp"
#include "runtime/core/log_about.hpp"
#include "runtime/crypto/digest.hpp"

namespace waggle {

namespace {

constexpr milliseconds own_copy_timeout = 5s; // an actor of this process copies a vector
constexpr milliseconds left_timeout = 100s;   // below that of a donor (left_timeout)

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

void trainer::hand_over(const group_residual& kept) {
  own_progress what;
  const auto& branch = at_.past().branch;
  if (kept.history == branch)
    what.residual = kept.values;
  if (model_->abilities().resumes)
    what.position = model_->position();
  auto neighbours = neighbours_of(ctx_.record.id, membership_.donors(branch));
  auto store = ctx_.make_store();
  auto sealed = store ? seal_left(what, *ctx_.self, ctx_.run_id, branch, **store) : store.error();
  auto content = sealed ? sha256_of(**store, 0, (*store)->size()) : sealed.error();
  if (!content)
    ctx_.log->warn("what only this peer has is lost: {}", to_string(content.error()));
  if (!content || what.empty())
    neighbours.clear();
  else
    left_.own = state_snapshot{at_.epoch(), {}, *store, {}, *content};
  hand_over_to({neighbours.begin(), neighbours.end()}, text_of(what));
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
  wire::open_state question{at_.past().branch, {}, ctx_.record.id, true};
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
  if (left_.own && wanted.owner == ctx_.record.id)
    return *left_.own;
  if (!wanted.leaver) {
    auto found = left_.others.take(wanted.owner, wanted.branch, now());
    if (!found)
      return to_caf(found.error());
    ctx_.log->info("peer {}, or another one in its place, is back: it gets what that one had alone",
                   short_name(wanted.owner));
    return snapshot_of(*found);
  }
  if (!model_ || notice_.begun() || stop_.begun || !membership_.has(wanted.owner))
    return to_caf(ec::no_donor, "this peer leaves, too, or is in another group");
  if (auto room = left_.others.expect(wanted.owner, now()); !room)
    return to_caf(room.error());
  auto promise = make_response_promise<state_snapshot>();
  fetch_left(wanted.owner, {*wanted.leaver},
             [this, wanted, promise, snapshot_of](const result<fetched_state>& got) mutable {
               if (!got) {
                 left_.others.drop(wanted.owner);
                 promise.deliver(to_caf(got.error()));
                 return;
               }
               left_progress::entry what{wanted.branch, got->content, got->state};
               left_.others.keep(wanted.owner, what, now());
               ctx_.log_caused("left progress", now(), spdlog::level::info,
                               fmt::format("keeps what peer {}, which leaves, had alone, for an "
                                           "hour: {} bytes",
                                           short_name(wanted.owner), got->state->size()));
               promise.deliver(snapshot_of(what));
             });
  return promise;
}

/// The first pass waits for it: this peer goes on as after a restart.
void trainer::recall() {
  left_.recalled = left_state::at::asked;
  auto owner = config_.instead_of;
  fetch_left(owner, neighbours_of(owner, membership_.donors(at_.past().branch)),
             [this, owner](const result<fetched_state>& got) {
               got ? on_recalled(owner, *got) : end_recall(owner, got.error());
             });
}

void trainer::on_recalled(const peer_id& owner, const fetched_state& got) {
  auto bytes = read_all(*got.state);
  auto what = bytes ? open_left(as_string_view(bytes->view()), owner, ctx_.run_id,
                                at_.past().branch, vector_.tensors().value_count(), *ctx_.verifier)
                    : bytes.error();
  if (!what)
    return end_recall(owner, what.error());
  log_about about{{.epoch = at_.epoch(), .remote = got.donor}};
  ctx_.log->info("goes on with what peer {} had left with peer {}: {}", short_name(owner),
                 short_name(got.donor), text_of(*what));
  left_.residual = what->residual;
  // A pass beside the worker could take samples meanwhile.
  bool first = !pass_.runs && passes_->address() == worker_->address();
  if (first && !what->position.empty() && model_->abilities().resumes)
    send(worker_, resume_at{what->position});
  end_recall(owner, {});
}

void trainer::end_recall(const peer_id& owner, const failure& why) {
  if (why.code != ec::none)
    ctx_.log->warn("nothing of what peer {} had alone is here: {}", short_name(owner),
                   to_string(why));
  left_.recalled = left_state::at::over;
  react();
}

/// Only its owner can have sealed it, so no offers are compared.
void trainer::fetch_left(const peer_id& owner, std::vector<peer_record> from,
                         std::function<void(const result<fetched_state>&)> then) {
  auto how = config_.fetch;
  how.download.bytes_max = left_bytes_max(vector_.tensors().value_count());
  how.open_timeout = 3s; // it is there, or nowhere; a link of the process before may be asked first
  request(spawn<state_fetcher>(ctx_, std::move(how), peers_.switchboard), left_timeout + 5s,
          fetch_state{std::move(from), at_.past().branch, {}, left_timeout, nullptr, owner})
    .then([then](const fetched_state& got) { then(got); },
          [then](const caf::error& why) { then(from_caf(why)); });
}

} // namespace waggle
