// This file is long: it is one part of one table, the options of training.

#include "runtime/config/option_bindings.hpp"
#include "runtime/core/try.hpp"
#include "runtime/training/loss_scaler.hpp"
#include "runtime/training/model_table.hpp"
#include "runtime/training/notice_period.hpp"
#include "runtime/training/optimizer_table.hpp"
#include "runtime/training/precision.hpp"
#include "runtime/training/schedule_text.hpp"
#include "runtime/training/strategy.hpp"

namespace waggle::option_bindings {

namespace {

using o = run_options;

constexpr const char* no_pause = "the table would be read without pause";
constexpr const char* too_much = "more does not fit a peer";
constexpr const char* in_torch = "set it in the constructor of the torch optimizer";
constexpr const char* parallel = "use torch's data parallelism in the loop";

/// Peers compare what the schedule means, not how it is written.
binding schedule() {
  return bound(&o::schedule, parse_schedule).agreed([](const run_options& x) {
    return agreed_text(x.schedule, x.warmup_epochs, schedule_length(x));
  });
}

/// Peers compare what "auto" stands for.
binding unit_of_schedule() {
  return choice(in(&o::how, &strategy_settings::unit), {{"auto", schedule_unit::automatic},
                                                        {"rounds", schedule_unit::rounds},
                                                        {"batches", schedule_unit::batches},
                                                        {"epochs", schedule_unit::epochs}})
    .agreed([](const run_options& x) -> std::string {
      auto unit = x.strategy.unit(x.how.unit);
      return unit == schedule_unit::epochs    ? "epochs"
             : unit == schedule_unit::batches ? "batches"
                                              : "rounds";
    })
    .only_if(
      [](const run_options& x) {
        return x.how.unit != schedule_unit::epochs || x.strategy->phase != nullptr;
      },
      "epochs belongs to --strategy daso: other strategies have no epochs beside their rounds; use "
      "rounds, or leave it out")
    .only_if(
      [](const run_options& x) {
        return x.how.unit != schedule_unit::batches || x.strategy->counts_steps();
      },
      "batches belongs to strategies that average after a number of steps: otherwise peers make "
      "different numbers of them from one average to the next; use rounds, or leave it out")
    .only_if([](const run_options& x) { return x.how.steps_in_epoch == 0; },
             "and --total-steps-in-epoch exclude each other: both say what an epoch of --schedule "
             "is; leave out one of them");
}

/// "auto" is the default of the optimizer; peers compare the value.
binding hyper_option(const hyper_parameter& hyper) {
  auto parse = [&hyper](std::string_view v) -> result<double> {
    if (hyper.number == nullptr) {
      WAGGLE_TRY(yes, parse_yes_no(v));
      return *yes ? 1.0 : 0.0;
    }
    return parse_bounded(v, {hyper.low, hyper.high, std::string{hyper.why_not_below},
                             std::string{hyper.why_not_above}, hyper.high_excluded});
  };
  auto text = [&hyper](double value) {
    return hyper.number != nullptr ? text_of(value) : text_of(value != 0);
  };
  std::string name{hyper.name};
  return binding{[=](run_options& x, std::string_view v) -> status {
                   x.hyper.erase(name);
                   if (v == "auto")
                     return done{};
                   WAGGLE_TRY(value, parse(v));
                   x.hyper[name] = *value;
                   return done{};
                 },
                 [=](const run_options& x) {
                   auto found = x.hyper.find(name);
                   return found == x.hyper.end() ? std::string{"auto"} : text(found->second);
                 }}
    .agreed([=, &hyper](const run_options& x) { return text(hyper.of(optimizer_of(x))); })
    .only_if(
      [name](const run_options& x) {
        const auto* row = find_optimizer(x.optimizer); // a loop may have any other
        return row == nullptr || row->find(name) != nullptr;
      },
      "belongs to --optimizer " + users_of(hyper) + "; leave it out, or use one of these")
    .not_in_loops(in_torch);
}

std::vector<option_row> hyper_rows() {
  std::vector<option_row> rows;
  for (const auto& hyper : hyper_parameters())
    rows.push_back({std::string{hyper.name}, hyper.number != nullptr ? "X" : "BOOL",
                    std::string{hyper.help} + "; of " + users_of(hyper) + ".",
                    hyper_option(hyper)});
  return rows;
}

/// 0, or a notice that a peer can use.
result<milliseconds> notice_time(std::string_view v) {
  auto value = parse_duration(v);
  if (value && value->count() != 0 && !leave_notice::check(*value))
    return failure{
      ec::bad_config,
      "must be 0, or from 1s, which a goodbye takes, to 1h, in which the peer computes nothing"};
  return value;
}

result<std::string> page_address(std::string_view v) {
  if (auto page = parse_url(v); !page && !v.empty())
    return page.error();
  return std::string{v};
}

result<std::string> id_of_peer(std::string_view v) {
  if (!v.empty() && !peer_id::parse(v))
    return failure{ec::bad_config,
                   "is no peer's id: write the 64 digits from its log, \"peer ID of "
                   "run\", or of `waggle id`"};
  return std::string{v};
}

using loss_scale_choice = decltype(run_options::loss_scale);

result<loss_scale_choice> loss_scale(std::string_view v) {
  if (v == "auto")
    return loss_scale_choice{};
  if (v == "dynamic")
    return loss_scale_choice{loss_scale_rule{}};
  if (v == "off")
    return loss_scale_choice{std::optional<loss_scale_rule>{}};
  auto number = parse_real(v);
  if (!number)
    return failure{ec::bad_config, "is not one of auto, dynamic, off, or a number"};
  if (!loss_scaler::is_power_of_two(*number) || *number < loss_scaler::scale_min
      || *number > loss_scaler::scale_max)
    return failure{ec::bad_config, "must be a power of two between 1 and 2^64: other numbers would "
                                   "round the gradient"};
  return loss_scale_choice{constant_scale(*number)};
}

std::string text_of_scale(const loss_scale_choice& choice) {
  if (!choice)
    return "auto";
  if (!*choice)
    return "off";
  return (**choice).growth == 1 ? text_of((**choice).initial) : "dynamic";
}

result<std::string> device_name(std::string_view v) {
  bool indexed = v.starts_with("cuda:") && parse_whole(v.substr(5)).ok();
  const std::vector<std::string> names{"auto", "cpu", "cuda", "cuda:N"};
  bool named = v != names.back() && std::find(names.begin(), names.end(), v) != names.end();
  if (!named && !indexed)
    return failure{ec::bad_config, "is not one of " + joined(names, ", ") + "; the nearest is "
                                     + nearest(v, names)};
  return std::string{v};
}

result<std::vector<std::string>> device_names(std::string_view v) {
  std::vector<std::string> all;
  if (v.empty())
    return all;
  for (auto piece : pieces_of(v, ',')) {
    auto name = device_name(piece);
    if (!name)
      return failure{ec::bad_config, "has a device that " + name.error().detail};
    all.push_back(*std::move(name));
  }
  return all;
}

template <class... Steps>
auto in_how(Steps... steps) {
  return in(&o::how, steps...);
}
using how = strategy_settings;

std::vector<option_row> strategy_rows() {
  return {
    {"strategy", "NAME", "How the peers train together. " + strategy_help(),
     bound(&o::strategy, strategy_choice::parse).agreed().member_in_loops("strategy")},
    {"delay-grad-averaging", "BOOL",
     "collaborative: compute on while gradients are averaged; each update is one epoch late.",
     yes_no(in_how(&how::delay_gradients)).agreed()},
    {"delay-optimizer-step", "BOOL",
     "collaborative: compute on while the optimizer steps; needs a second copy of the parameters.",
     yes_no(&o::delay_optimizer_step)
       .only_if([](const o& x) { return x.replicas == 1; },
                "and --replicas exclude each other: all replicas read the parameters that the "
                "optimizer changes; use --delay-grad-averaging, which hides the round, or "
                "--replicas 1")
       .only_if(
         [](const o& x) { return x.offload_optimizer || !x.given.contains("offload-optimizer"); },
         "needs the second copy of the parameters that --offload-optimizer makes: leave out "
         "--offload-optimizer false")},
    {"offload-optimizer", "BOOL",
     "Keep the optimizer and its statistics in host memory; passes read a copy of the parameters.",
     yes_no(&o::offload_optimizer)},
    {"low-rank", "N",
     "collaborative, diloco: average gradients, or progress, of matrices at this rank (PowerSGD), "
     "which sends fewer values; 0: as they are.",
     whole(in_how(&how::coding, &lane_coding::rank), 0, 4096, "a higher rank would save nothing")
       .agreed()
       .only_if([](const o& x) { return x.matchmaking.reduce_by.how == aggregator::mean; },
                "and --aggregator exclude each other, unless that is mean: what peers add from "
                "earlier rounds would look like Byzantine outliers; use --codec with the "
                "aggregator, or --aggregator mean")},
    {"min-compression-ratio", "X",
     "With --low-rank: matrices of which less than this share would be saved are sent as they "
     "are.",
     real(in_how(&how::coding, &lane_coding::least_saving),
          {0.01, 0.99, "nothing would be saved", "factors are never that small"})
       .agreed()
       .only_if([](const o& x) { return x.how.coding.rank > 0; },
                "needs --low-rank: it selects the matrices that --low-rank shortens; set "
                "--low-rank, or leave it out")},
    {"delay-state-averaging", "BOOL",
     "Strategies that average parameters: compute on meanwhile, and add the change at its "
     "arrival.",
     yes_no(in_how(&how::delay_state)).agreed()},
    {"average-state-every", "N",
     "local-updates: average after so many epochs of --target-batch-size samples; --schedule and "
     "--epochs count these epochs.",
     whole(in_how(&how::epochs_per_round), 1, 1U << 20U, "there has to be an epoch to average")
       .agreed()},
    {"averaging-steps-period", "N",
     "decentralized-*: average when the fastest peer has made so many steps.",
     whole(in_how(&how::steps_period), 1, many, "there has to be a step to average").agreed()},
    {"averaging-time-period", "TIME",
     "decentralized-*, diloco: begin rounds only at multiples of this, so that peers begin "
     "together.",
     duration(in_how(&how::time_period)).agreed()},
    {"total-steps-in-epoch", "N",
     "decentralized-*: an epoch of the --schedule has so many steps of all peers together; 0: it "
     "lasts from one average to the next.",
     whole(in_how(&how::steps_in_epoch)).agreed()},
    {"average-opt-statistics", "NAMES",
     "Statistics of the optimizer to average with the parameters, such as exp_avg_sq; auto: those "
     "of the strategy; or none.",
     text(&o::average_opt_statistics).agreed([](const run_options& x) {
       auto names = joined(averaged_statistics_of(x), ",");
       return names.empty() ? "none" : names; // an empty text: not known on this machine
     })},
    {"average-gradients", "BOOL",
     "Strategies that average parameters: average the gradient of each peer's last step, too, and "
     "add the change to that of its next step.",
     yes_no(in_how(&how::average_gradients)).agreed()},
    {"max-epoch-difference", "N",
     "Strategies that average parameters: a peer further behind downloads the state. diloco: a "
     "peer further behind loses the progress that it has not contributed.",
     whole(&o::epoch_difference_max, 0, 1U << 20U, "more is another run")},
    {"groups", "NAME",
     "one: the peers of a run are one group of at most --target-group-size. moshpit: strategies "
     "that average parameters form groups of that size anew for each round, so that a run may "
     "have any number of peers.",
     choice(&o::many_groups, {{"one", false}, {"moshpit", true}})
       .agreed()
       .only_if([](const o& x) { return x.epoch_difference_max > 0; },
                "moshpit needs --max-epoch-difference 1 or more: groups end their rounds one after "
                "another, so peers are an epoch apart for a while; raise it, or leave it out")}};
}

std::vector<option_row> update_rows() {
  return {
    {"target-batch-size", "N",
     "Samples of all peers in an epoch, i.e. from one average to the next (but see "
     "--average-state-every).",
     whole(&o::target_batch_size, 1, many, "an epoch needs at least one sample")
       .agreed()
       .member_in_loops("target_batch_size")},
    {"micro-batch", "N",
     "Samples of one forward and backward pass of this peer; by default fewer where "
     "--target-batch-size does not hold a pass of each of the --min-peers.",
     whole(&o::micro_batch, 1, 1U << 20U, "a step needs at least one sample")
       .not_in_loops("pass the number of samples to step")},
    {"epochs", "N",
     "Length of the run: updates with collaborative, otherwise averages (but see "
     "--average-state-every); 0: until stopped.",
     whole(&o::epochs).agreed().member_in_loops("max_epochs")},
    {"passes", "N",
     "Length of the run instead of --epochs: passes over --data, in which each sample (an image, "
     "a window of text or tokens, a block of lines of JSON) enters one update of the swarm, "
     "whoever dies or joins; 0: "
     "samples are drawn at random.",
     whole(&o::passes, 0, 1U << 20U, "a run needs an end before that")
       .agreed()
       .not_in_loops("pass them to waggle::shards::of, in Python to swarm.shards, which deal the "
                     "samples of a loop")},
    {"layers", "N", "Blocks of char-gpt, hidden layers of mlp, convolutions of cnn.",
     whole(&o::layers, 1, 256, too_much).agreed()},
    {"width", "N",
     "Values per position (char-gpt) or per hidden layer (mlp, cnn, whose first convolution has a "
     "quarter as many channels, and each one twice those of the one before).",
     whole(&o::width, 1, 65536, too_much).agreed()},
    {"heads", "N", "Attention heads of char-gpt; must divide --width.",
     whole(&o::heads, 1, 1024, too_much).agreed()},
    {"context", "N", "Bytes, or tokens, of which char-gpt and mlp predict the next one.",
     whole(&o::context, 2, 65536, "a prediction needs something before it").agreed()},
    {"optimizer", "NAME", optimizer_help() + ".",
     one_of(&o::optimizer, names_in(optimizer_table()))
       .agreed()
       .not_in_loops("pass another torch optimizer")},
    {"lr", "X", "Peak learning rate.",
     real(&o::lr, {0, 1e6, "a negative rate would climb the loss",
                   "every optimizer diverges with a larger one"})
       .agreed()},
    {"schedule", "NAME",
     "Learning rate by epoch: NAME, or NAME:NUMBER=VALUE,NUMBER=VALUE, or several joined by /, of "
     "which each but the last needs epochs=N (linear:epochs=5/cosine). A schedule with a length "
     "lasts until the end of the run, unless epochs=N is set. "
       + schedule_help() + ".",
     schedule()},
    {"warmup-epochs", "N", "Epochs during which the learning rate rises linearly.",
     whole(&o::warmup_epochs).agreed()},
    {"schedule-unit", "NAME",
     "What --schedule and --warmup-epochs count: rounds; batches, the passes of the fastest peer "
     "(strategies that average after a number of steps); or epochs of daso. auto: epochs with "
     "daso, otherwise rounds.",
     unit_of_schedule()},
    {"weight-decay", "X",
     "Weight decay; a part of the gradient, or decoupled from it (see --optimizer).",
     real(&o::weight_decay, {0, 1e6, "a negative one would let the weights grow without end",
                             "a larger one would erase the weights in one step"})
       .agreed()
       .not_in_loops(in_torch)},
    {"no-decay", "WHAT",
     "What does not decay: none, or vectors, i.e. biases, weights of norms and all other tensors "
     "with fewer than two dimensions.",
     one_of(&o::no_decay, {"none", "vectors"})
       .agreed()
       .not_in_loops("give vectors a parameter group with weight decay 0")},
    {"max-gradient-norm", "X",
     "Scale the mean gradient of an epoch down to this norm if it is longer; 0: never.",
     real(&o::max_gradient_norm,
          {0, 1e30, "a length is not negative", "no finite gradient is that long"})
       .agreed()}};
}

std::vector<option_row> machine_rows() {
  return {
    {"device", "NAME", "auto, cpu, cuda or cuda:N.",
     bound(&o::device, device_name)
       .not_in_loops("move the module before the torch optimizer is constructed")},
    {"replicas", "N",
     "Copies of the model in this peer that run passes side by side, each with its own samples; "
     "a pass of the peer is one of each.",
     whole(&o::replicas, 1, 64, too_much)
       .only_if(is_no_auxiliary,
                "and --auxiliary exclude each other: an auxiliary makes no passes; leave out "
                "--replicas, or --auxiliary")
       .not_in_loops(parallel)},
    {"devices", "LIST", "Devices of the replicas, in turn, instead of --device: cuda:0,cuda:1.",
     bound(&o::devices, device_names, [](const auto& names) { return joined(names, ","); })
       .not_in_loops(parallel)},
    {"precision", "FORMAT",
     "Number format of the products in a pass: " + listed_with_notes(precision_table)
       + "; parameters and gradients stay float32.",
     choice(&o::format, precision_table, &precision_row::format)
       .not_in_loops("compute the loss in torch's autocast")},
    {"loss-scale", "SCALE",
     "Multiply the loss by this before the backward pass, and divide the gradient again: dynamic "
     "(65536, less after an overflow), a power of two, or off; auto: dynamic with float16.",
     bound(&o::loss_scale, loss_scale, text_of_scale)},
    {"reuse-grad-buffers", "BOOL",
     "collaborative: accumulate in the gradient of the model, which saves a vector; a round waits "
     "for the running pass.",
     yes_no(&o::reuse_gradient_buffers)},
    {"threads", "N", "Compute threads.",
     whole(&o::threads, 1, 1024, "at least one").not_in_loops("call set_num_threads of torch")},
    {"step-interval", "TIME",
     "Minimum time between two passes: leaves the machine to other programs.",
     duration(&o::step_interval)}};
}

std::vector<option_row> peer_rows() {
  return {
    {"join-timeout", "TIME",
     "If addresses of other peers are known: search for the run this long before training alone.",
     duration(&o::join_timeout).member_in_loops("join_timeout")},
    {"start-alone", "BOOL",
     "Start training if no address answers within --join-timeout, even without a state of the "
     "run.",
     yes_no(&o::may_start_alone).member_in_loops("start_alone")},
    {"on-split", "WHAT",
     "When cut off from most of the group: continue provisionally, or pause until it is back.",
     choice(&o::continue_on_split, {{"continue", true}, {"pause", false}})},
    {"min-peers", "N",
     "Begin to train once this many peers, this one included, are in the group, and with a target "
     "batch size hold its state.",
     whole(&o::min_peers, 1, 4096, "more peers than a group may have would never be reached")},
    {"wait-for-peers", "TIME",
     "But wait for --min-peers at most this long; 0: as long as it takes.",
     duration(&o::wait_for_peers)
       .only_if([](const o& x) { return x.min_peers > 1; },
                "needs --min-peers 2 or more: there is nothing to wait for; raise --min-peers, or "
                "leave it out")},
    {"load-state-timeout", "TIME", "Deadline of one download of the run's state.",
     duration(&o::sync_timeout, 1s, "a download needs some time")},
    {"share-state", "BOOL",
     "Give this peer's state to peers that join. false: they are told so, and ask others.",
     yes_no(&o::share_state)},
    {"share-priority", "N",
     "Peers that join ask those with the highest priority first for the state.",
     real(&o::share_priority,
          {-1e6, 1e6, "only the order of the peers counts", "only the order of the peers counts"})
       .only_if([](const o& x) { return x.share_state; },
                "needs --share-state true: this peer gives its state to nobody")},
    {"shutdown-timeout", "TIME", "How long the last checkpoint may take when this peer is stopped.",
     duration(&o::shutdown_timeout)},
    {"report-expiration", "TIME",
     "A peer's progress report counts this long, unless there is another sign of the peer.",
     duration(&o::report_expiration, 1s, "reports would expire before they are read")},
    {"min-refresh-period", "TIME", "Minimum time between two reads of unconnected peers' progress.",
     duration(in(&o::ledger, &ledger_options::refresh_min), 10ms, no_pause)},
    {"max-refresh-period", "TIME", "Maximum time between two reads of unconnected peers' progress.",
     duration(in(&o::ledger, &ledger_options::refresh_max), 10ms, no_pause)},
    {"default-refresh-period", "TIME", "The same while no other peer is known.",
     duration(in(&o::ledger, &ledger_options::refresh_default), 10ms, no_pause)},
    {"expected-drift-peers", "X",
     "Peers that may join during an epoch: the progress is read earlier by their share.",
     real(in(&o::ledger, &ledger_options::expected_drift_peers),
          {0, 4096, "peers cannot leave before they have joined",
           "that is more than a group may have"})},
    {"expected-drift-rate", "X", "The same as a share of the peers; the larger number counts.",
     real(in(&o::ledger, &ledger_options::expected_drift_rate),
          {0, 100, "peers cannot leave before they have joined",
           "that is a hundred times as many as there are"})},
    {"performance-ema-alpha", "X",
     "Weight of the newest measurement in a peer's samples per second.",
     real(&o::performance_ema_alpha,
          {0.001, 1, "the speed would never change", "1 forgets all earlier measurements"})},
    {"resume", "BOOL", "Keep checkpoints in --data-dir and resume from the newest one.",
     yes_no(&o::resume).member_in_loops("resume")},
    {"from", "CHECKPOINT",
     "Begin a new run with the parameters of this checkpoint of this model, of any strategy and "
     "optimizer; a peer that resumes or joins does not use it.",
     path_text(&o::from).not_in_loops("load the parameters before the optimizer is "
                                      "constructed")},
    {"checkpoint-interval", "TIME",
     "Minimum time between two checkpoints, which are written at the end of an epoch.",
     duration(&o::checkpoint_interval)},
    {"keep", "N", "Checkpoints to keep of the run's history.",
     whole(&o::keep, 1, 1U << 16U, "without one nothing can be resumed")},
    {"linger", "TIME", "After --epochs: keep serving the state to other peers this long.",
     duration(&o::linger).not_in_python("keep the loop running, or call leave")},
    {"leave-within", "TIME",
     "TERM and USR1 are a notice: the peer computes nothing new and leaves when its samples are "
     "in an update, at the latest after this time; 0: they end it at once.",
     bound(&o::leave_within, notice_time)
       .not_in_loops("call swarm.notice, or waggle.leave_on_notice")},
    {"notice-url", "URL",
     "A page of the cloud, asked every two seconds, whose answer 200 is the same notice; 404: "
     "there is none.",
     bound(&o::notice_url, page_address)
       .not_in_loops("call swarm.notice, or waggle.leave_on_notice")
       .only_if([](const o& x) { return x.leave_within > 0ms; },
                "needs --leave-within, the time from the notice until the machine is taken away")},
    {"instead-of", "ID",
     "Go on with what a peer that left by a notice had left with another one: the errors of its "
     "codecs, and its place in the data. A peer that is back with its own identity needs no "
     "option.",
     bound(&o::instead_of, id_of_peer)}};
}

} // namespace

void add_training_options(std::vector<option_spec>& table) {
  for (auto rows : {strategy_rows, update_rows, hyper_rows, machine_rows, peer_rows})
    add_group(table, "training", rows());
}

} // namespace waggle::option_bindings
