// This file is long: it is the life of one loop's peer, whose joins, steps and ends share its
// locks.

#include "actors/loop/swarm_session.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <mutex>

#include <spdlog/logger.h>

#include "actors/caf_error.hpp"
#include "actors/caller_thread.hpp"
#include "actors/program/training_parts.hpp"
#include "runtime/agreement/data_files.hpp"
#include "runtime/config/agreed_options.hpp"
#include "runtime/config/values.hpp"
#include "runtime/core/try.hpp"
#include "runtime/net/handshake.hpp"
#include "runtime/training/averaged_tensors.hpp"
#include "runtime/training/strategy.hpp"

namespace waggle {

namespace {

using steady = std::chrono::steady_clock;

constexpr auto question_timeout = 500ms;
constexpr auto look_every = 20ms;
constexpr auto hurry_time = 300ms; // for the checkpoint, before other peers are notified
constexpr auto copy_time = 5s;     // beyond a node's limit: this thread copies the state first
constexpr auto release_timeout = 5s;
constexpr auto first_notice = 10s; // of a wait, as in wait_log

/// The threads of the loops of this process. Thread-safe.
class loop_threads {
public:
  using entry = std::shared_ptr<std::atomic<std::thread::id>>;

  /// It counts as long as the result lives.
  entry add() {
    auto made = std::make_shared<std::atomic<std::thread::id>>(std::this_thread::get_id());
    std::lock_guard guard{mutex_};
    std::erase_if(all_, [](const auto& each) { return each.expired(); });
    all_.push_back(made);
    return made;
  }
  /// The loops of this thread.
  [[nodiscard]] std::size_t here() const {
    std::lock_guard guard{mutex_};
    return static_cast<std::size_t>(std::ranges::count_if(all_, [](const auto& each) {
      auto loop = each.lock();
      return loop && loop->load() == std::this_thread::get_id();
    }));
  }

private:
  mutable std::mutex mutex_;
  std::vector<std::weak_ptr<entry::element_type>> all_;
};

loop_threads& threads() {
  static loop_threads all;
  return all;
}

failure bad(std::string why) {
  return {ec::bad_config, std::move(why)};
}

/// Describes a model of which only the parameters and buffers are known.
agreed_field describe(const state_table& table) {
  using kind = state_tensor::kind;
  auto tensors = table.tensors_of({kind::parameter, kind::buffer, kind::counter});
  std::vector<compared_tensor> all;
  for (const auto& tensor : tensors) {
    std::string shape;
    for (auto size : tensor.shape)
      shape += (shape.empty() ? " of " : " x ") + std::to_string(size);
    all.push_back({tensor.name + shape, schema_of(state_table{{tensor}}, {}, {})});
  }
  return tensors_field("model",
                       std::to_string(tensors.size()) + " tensors with "
                         + std::to_string(table.parameter_count() + table.buffer_count())
                         + " values",
                       all);
}

} // namespace

result<std::shared_ptr<swarm_session>> swarm_session::prepare(const swarm_options& options) {
  std::shared_ptr<swarm_session> session{new swarm_session};
  WAGGLE_TRY(usable, session->configure(options));
  WAGGLE_TRY(process, peer_process::prepare(session->options_, options.around));
  session->process_ = std::move(*process);
  return session;
}

status swarm_session::configure(const swarm_options& options) {
  auto resolved = run_options_of(options, passes_);
  WAGGLE_TRY(usable, resolved ? check_training_options(*resolved) : resolved.error());
  auto rule = resolved->scale_rule();
  if (rule && resolved->reuse_gradient_buffers)
    return bad("--loss-scale and --reuse-grad-buffers exclude each other in a "
               "loop, whose step would divide the sum by the scale of each pass: leave one out");
  bool steps_in_module = !resolved->offload_optimizer && !resolved->delay_optimizer_step;
  if (resolved->reuse_gradient_buffers && resolved->how.delay_gradients && steps_in_module)
    return bad(
      "--reuse-grad-buffers and --delay-grad-averaging exclude each other: both write .grad");
  given_ = options;
  options_ = std::move(*resolved);
  scale_ = rule ? std::make_shared<loss_scaler>(*rule) : nullptr;
  if (process_)
    process_->set_options(options_);
  return done{};
}

swarm_session::~swarm_session() {
  if (port_)
    port_->close(); // threads that compute must end before the actor system
}

const peer_id& swarm_session::id() const {
  return process_->self().id();
}

const std::filesystem::path& swarm_session::data_dir() const {
  return process_->data_dir();
}

std::string swarm_session::model_function() const {
  return function_of(given_.model, options_);
}

update_place swarm_session::place() const {
  if (options_.delay_optimizer_step)
    return update_place::beside_passes;
  return options_.offload_optimizer ? update_place::host_memory : update_place::module;
}

/// The values that `waggle train` would compare for the same model, optimizer and data.
result<run_agreement> swarm_session::agreement(const loop_port& port,
                                               const frozen_tensors& frozen) const {
  WAGGLE_TRY(base, training_agreement(options_, protocol_version));
  std::map<std::string, std::string> other{{"data", given_.data}};
  if (given_.learning_rate == rate_owner::optimizer)
    other["schedule"] = given_.schedule;
  std::optional<agreed_field> described;
  if (find_model(given_.model) == nullptr) {
    if (given_.model.empty())
      described = describe(port.tensors());
    other["model"] = given_.model;
    for (const char* detail : {"layers", "width", "heads", "context"})
      if (!given_.more.contains(detail))
        other[detail] = "its own";
  }
  run_agreement all;
  for (auto field : base->fields()) {
    if (auto found = other.find(field.name); found != other.end())
      field = listed_field(field.name, found->second); // no option sets this value
    if (described && field.name == "model")
      field = *described;
    WAGGLE_TRY(added, all.add(std::move(field)));
  }
  if (!frozen)
    (void)all.add({"frozen", {}, {}, {}}); // equal to every value
  else if (!frozen->empty())
    if (auto added =
          all.add(tensors_field("frozen", std::to_string(frozen->size()) + " tensors", *frozen));
        !added)
      return added.error();
  return all;
}

/// Whether the optimizer keeps what a round averages of a loop that steps with each pass.
status swarm_session::check_statistics(const state_table& tensors) {
  if (auto given = given_.more.find(averaged_statistics); given != given_.more.end()) {
    if (auto set = find_option(averaged_statistics)->set(options_, given->second); !set)
      return bad("--" + given->first + ": '" + given->second + "' " + set.error().detail);
    options_.given[given->first] = given->second;
  }
  WAGGLE_TRY(fits, check_optimizer_of_strategy(options_));
  if (!strategy().steps_each_pass())
    return done{};
  auto how = options_.how;
  how.statistics = averaged_statistics_of(options_);
  auto averaged = options_.strategy.make(how).averages;
  averaged.what = lane_content::parameters; // of which progress is a difference
  averaged.gradients = false; // with_averaged_gradients keeps them, and not the loop's learner
  auto found = averaged_tensors::of(tensors, averaged);
  return found ? status{done{}} : found.error();
}

status swarm_session::start(std::shared_ptr<loop_port> port, loop_model& model,
                            const optimizer_identity& optimizer, double learning_rate,
                            const std::string& rate_ratios, const frozen_tensors& frozen,
                            const std::string& rounds) {
  if (port_)
    return bad("this swarm already has an optimizer: call waggle::join once for each optimizer");
  auto& o = options_;
  if (o.strategy.make(o.how).averages.in_buckets && !o.auxiliary && !port->backward().heard())
    return bad("--strategy: leave out buckets=1, a loop's backward pass is its own");
  o.optimizer = optimizer.kind;
  o.weight_decay = optimizer.weight_decay;
  o.no_decay = optimizer.decay_vectors ? "none" : "vectors";
  for (const auto& hyper : hyper_parameters())
    o.hyper[std::string{hyper.name}] = hyper.of(optimizer);
  o.model = given_.model;
  if (given_.learning_rate == rate_owner::optimizer)
    o.lr = learning_rate;
  WAGGLE_TRY(kept, check_statistics(port->tensors()));
  WAGGLE_TRY(agreed, agreement(*port, frozen));
  if (draws_)
    if (auto samples = std::to_string(draws_->ledger().samples());
        !agreed->add({"samples", samples, {}}))
      return bad("two options are called samples");
  if (!rate_ratios.empty())
    if (auto added = agreed->add({"learning-rate-ratios", rate_ratios, {}}); !added)
      return added;
  if (auto of = model.rounding(); !rounds.empty() && of != 0 && !strategy().steps_each_pass())
    if (auto added = agreed->add(rounding_field(rounds, of)); !added)
      return added;
  auto config = process_->base_config();
  config.agreement = std::make_shared<const run_agreement>(std::move(*agreed));
  auto make = [port, local = strategy().steps_each_pass()]() -> result<std::unique_ptr<learner>> {
    return make_loop_learner(port, local);
  };
  port->use_draws(draws_);
  add_training_parts(config, o, with_loss_scale(make, scale_), process_->data_dir(), {}, draws_);
  config.training->training.leave = process_->notice();
  WAGGLE_TRY(started, process_->start(config));
  addresses_ = started->ctx.record.addresses;
  process_->log().info("listening on {}; peer {} of run {}, data in {}", to_string(started->bound),
                       to_string(id()), o.run_id, data_dir().string());
  if (!config.client_mode) {
    address_ = started->bound;
    process_->log().info("initial peers for others: {}", text_of(addresses_));
  }
  unanswered_.emplace(o.run_id, o.initial_peers, join_timeouts_max * given_.join_timeout);
  port_ = std::move(port);
  model_ = &model;
  stepper_ = threads().add();
  node_ = std::move(*started);
  board_ = node_->board;
  return done{};
}

const strategy_row& swarm_session::strategy() const {
  return *options_.strategy;
}

gradient_use swarm_session::use_of_gradients() const {
  return options_.reuse_gradient_buffers ? gradient_use::in_place : gradient_use::summed;
}

/// As `waggle train` checks --micro-batch.
void swarm_session::check_samples(std::uint64_t samples, option_writer who,
                                  std::uint64_t claims) const {
  auto bad = [who](const std::string& why) { throw std::invalid_argument{as_written(why, who)}; };
  if (options_.auxiliary && samples > 0)
    bad("with --auxiliary a loop has no samples, and its step helps the others until the run is "
        "over: step over 0 samples, or leave out --auxiliary");
  if (options_.auxiliary)
    return;
  if (samples == 0)
    bad("the gradient must be over at least one sample");
  bool of_blocks = claims > 0;
  if (!of_blocks)
    claims = samples;
  if (of_blocks && !draws_)
    bad("the gradient is over " + std::to_string(claims)
        + " blocks, and nothing deals them: call swarm.shards before the optimizer is constructed");
  if (claims > samples)
    bad("the gradient is over " + std::to_string(claims) + " blocks, and weighs as "
        + std::to_string(samples) + ": each block counts as one record at least");
  if (auto ahead = draws_ && !over_ ? draws_->ahead() : claims; claims > ahead)
    bad("the gradient is over " + std::to_string(claims)
        + " samples, and of those that the shards handed out, " + std::to_string(ahead)
        + " were in no step: pass the number of samples of the batch");
  if (auto each = port_ ? port_->samples_each() : 0; each != 0 && samples != each)
    bad("the gradient is over " + std::to_string(samples) + " samples, and the one before it over "
        + std::to_string(each)
        + ": with --reuse-grad-buffers, both have equally many, "
          "because autograd adds them up without a weight");
  if (samples > given_.target_batch_size && !strategy().counts_steps())
    bad("the gradient is over " + std::to_string(samples)
        + " samples, more than --target-batch-size, " + std::to_string(given_.target_batch_size)
        + ": one step would end more than one epoch; use "
        + (of_blocks ? "smaller blocks" : "a smaller batch") + " or a larger target on all peers");
}

step_outcome swarm_session::offer(std::span<const offered_tensor> gradient, const micro_step& pass,
                                  const loop_port::is_over& over, std::uint64_t passes) {
  *stepper_ = std::this_thread::get_id();
  if (options_.auxiliary) { // no pass is ever wanted
    port_->await_pass(*model_, over);
    return step_outcome::finished;
  }
  if (pass.finite && std::isnan(pass.loss) && options_.strategy.phase() && ++silent_steps_ == 2)
    warn(
      "this loop gives no loss, and the strategy " + std::string{strategy().name}
      + " averages more or less often as the mean loss of all peers falls: pass the mean loss of "
        "the samples to each step; until then the losses of the others decide, and if nobody "
        "gives one, the rounds stay as often as they are after the warm-up");
  return port_->offer(*model_, gradient, pass, over, passes);
}

std::optional<training_status> swarm_session::ask() const {
  if (!node_ || node_->board->has_ended())
    return last_;
  std::optional<training_status> answer;
  caller_actor asker{process_->system()};
  asker->request(node_->parts.trainer, question_timeout, get_training_status{})
    .receive([&](const training_status& s) { answer = s; },
             [](const caf::error&) { /* the trainer is busy or ending, which `over` detects */ });
  return answer;
}

bool swarm_session::over() {
  if (over_ || !node_)
    return true;
  if (node_->board->has_ended())
    throw swarm_error{{ec::shutting_down, "this peer has ended; its log contains the reason"}};
  if (auto refused = process_->refused_by_all())
    throw swarm_error{{refused->code, "refused by all initial peers: " + refused->detail}};
  if (auto now = node_->board->training()) {
    last_ = *now;
    over_ = now->phase == trainer_phase::finished;
    if (auto why = unanswered_->look(now->waiting_for, steady::now()))
      throw swarm_error{*why};
    check_wait(now->waiting_for);
  }
  return over_;
}

/// Of two loops of one thread, one may wait for what the other can only do in a call of its own:
/// nobody else would end that wait.
void swarm_session::check_wait(const std::string& waiting_for) {
  auto time = steady::now();
  if (!wait_.since || wait_.offered != offered())
    wait_ = {offered(), time, false};
  auto waited = std::chrono::duration_cast<std::chrono::seconds>(time - *wait_.since);
  bool too_long = waited >= join_timeouts_max * given_.join_timeout;
  if (over_ || !(too_long || (waited >= first_notice && !wait_.logged)))
    return;
  auto here = threads().here();
  if (here < 2)
    return;
  wait_.logged = true;
  auto why =
    "run " + given_.run + ": a step has waited " + std::to_string(waited.count()) + " s"
    + (waiting_for.empty() ? "" : " for " + waiting_for) + ", and meanwhile "
    + std::to_string(here - 1) + (here == 2 ? " other loop" : " other loops")
    + " of this thread cannot step: give each loop a thread or a process of its own if one "
      "waits for the other, start the peers that are missing, or lower min_peers";
  process_->log().warn("{}", why);
  if (too_long)
    throw swarm_error{{ec::timeout, why + "; with a larger join_timeout it waits longer"}};
}

void swarm_session::stop(loop_model& model, bool in_a_hurry,
                         const std::function<bool()>& interrupted) noexcept {
  if (!node_)
    return;
  try {
    stop_running(model, in_a_hurry, interrupted);
  } catch (const std::exception& e) {
    process_->log().error("this peer failed while it stopped: {}", e.what());
  }
  port_->close();
  model_ = nullptr;
  stepper_.reset();
  node_.reset();
}

/// Executes the peer's requests to `model` until `done` or `limit`.
void swarm_session::serve(loop_model& model, std::chrono::milliseconds limit,
                          const std::function<bool()>& done) {
  auto end = steady::now() + limit;
  try {
    port_->serve(model, look_every, [&] { return steady::now() >= end || done(); });
  } catch (const std::exception& e) {
    process_->log().error("a request of the peer to the model failed: {}", e.what());
    port_->close();
  }
}

void swarm_session::stop_running(loop_model& model, bool in_a_hurry,
                                 const std::function<bool()>& interrupted) {
  auto hurry = [&] { return in_a_hurry = in_a_hurry || (interrupted && interrupted()); };
  // Under notice, the trainer knows when its samples are in an update, newcomers have the state,
  // and a neighbour what only this peer has.
  auto notice = process_->notice()->within();
  if (!in_a_hurry)
    serve(model, std::max(drain_time, notice.value_or(0ms)), [&] {
      if (hurry())
        return true;
      auto now = ask();
      bool finished = now && now->phase == trainer_phase::finished;
      bool needs_round = now && now->phase == trainer_phase::averaging;
      bool waits = notice ? now && !finished : needs_round || (finished && now->peers_behind > 0);
      return node_->board->has_ended() || !waits;
    });
  {
    caller_actor self{process_->system()};
    auto limit = process_->shutdown_limit() + copy_time;
    auto stopped =
      self->request(node_->node, limit,
                    shut_down{in_a_hurry ? "its loop ended by an exception, or with its program"
                                         : "its loop has ended"});
    // The checkpoint needs this thread, which copies the state.
    auto end = steady::now() + hurry_time;
    serve(model, in_a_hurry ? hurry_time : limit,
          [&] { return node_->board->has_ended() || (hurry() && steady::now() >= end); });
    if (in_a_hurry)
      port_->close();
    std::optional<training_status> at_end;
    stopped.receive([&](const training_status& s) { at_end = s; },
                    [&](const caf::error& why) {
                      process_->log().error("this peer did not stop in time: {}",
                                            to_string(from_caf(why)));
                    });
    if (at_end && at_end->phase == trainer_phase::stopped) {
      last_ = std::move(at_end);
    } else { // the trainer did not say that it has kept anything
      last_ = last_.value_or(training_status{});
      last_->samples_dropped += summary(*last_).samples_pending;
    }
  }
  // Finish the requests that this thread has begun, e.g. a snapshot for another peer.
  // In the caller's actor system, where others run on, closing the port ends them instead.
  if (process_->owns_system())
    serve(model, release_timeout, [&] { return process_->system().registry().running() == 0; });
  if (!last_)
    return;
  auto s = status_now();
  process_->log().info("this peer's loop ended at epoch {}{}: {} samples offered, {} used, {} "
                       "dropped, {} kept for the next start; {} rounds; parameters {}",
                       s.epoch, s.finished && !process_->notice()->within() ? " (the last)" : "",
                       s.samples_offered, s.samples_used, s.samples_dropped, s.samples_pending,
                       s.rounds, to_string(last_->parameters));
}

swarm_status swarm_session::summary(const training_status& s) const {
  swarm_status out;
  out.epoch = s.epoch.value();
  out.finished = over_ || s.phase == trainer_phase::finished;
  out.group_size = s.group_size;
  out.samples_offered = s.samples_resumed + offered();
  out.samples_used = s.samples_used;
  out.samples_dropped = s.samples_dropped;
  out.samples_pending = out.samples_offered - out.samples_used - out.samples_dropped;
  out.state_downloads = s.state_downloads;
  out.rounds = s.rounds_complete + s.rounds_shrunk;
  out.waiting_for = s.waiting_for;
  out.loss = s.loss;
  out.strategy = s.strategy;
  out.mean_age = s.mean_age;
  out.parameters = s.parameters;
  out.passes = s.passes;
  return out;
}

void swarm_session::warn(const std::string& sentence) const {
  process_->log().warn(sentence);
}

status swarm_session::deal(std::uint64_t samples, std::uint64_t passes) {
  if (port_ || draws_)
    return bad(port_
                 ? "the samples must be dealt before the optimizer is constructed, which states "
                   "them to the other peers"
                 : "the samples of this swarm are dealt already");
  if (samples == 0 || samples > sample_ledger::samples_max)
    return bad("shards deal 1 to " + std::to_string(sample_ledger::samples_max)
               + " samples, and there are " + std::to_string(samples));
  if (passes == 0 || passes > passes_max)
    return bad("passes is " + std::to_string(passes) + ", and must be from 1 to "
               + std::to_string(passes_max));
  passes_ = passes;
  if (auto fits = configure(given_); !fits) {
    passes_ = 0;
    return fits;
  }
  draws_ = std::make_shared<sample_draws>(id(), samples, given_.run);
  return done{};
}

status swarm_session::notice(milliseconds within) const {
  return process_->notice()->give(within);
}

bool swarm_session::await_samples(const loop_port::is_over& over) {
  return model_ != nullptr && !over_ && port_->await_samples(*model_, over);
}

status swarm_session::wait_until_ready(std::chrono::milliseconds timeout) const {
  if (auto board = board_.load())
    return board->wait_until_ready(timeout);
  return failure{ec::not_ready, "no optimizer was constructed with this swarm yet"};
}

swarm_status swarm_session::status_now() const {
  auto s = ask();
  return s ? summary(*s) : status_seen();
}

} // namespace waggle
