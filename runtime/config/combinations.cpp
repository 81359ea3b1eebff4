#include <algorithm>
#include <sstream>

#include "runtime/averaging/aggregation.hpp"
#include "runtime/config/options.hpp"
#include "runtime/config/values.hpp"
#include "runtime/core/check.hpp"
#include "runtime/core/named.hpp"
#include "runtime/core/nearest.hpp"
#include "runtime/training/loss_scaler.hpp"
#include "runtime/training/model_table.hpp"
#include "runtime/training/optimizer_table.hpp"
#include "runtime/training/schedule_text.hpp"
#include "runtime/training/strategy.hpp"

namespace waggle {

model_shape shape_of(const run_options& o) {
  auto number = [](std::uint64_t n) { return static_cast<std::int64_t>(n); };
  return {number(o.layers), number(o.width), number(o.heads), number(o.context)};
}

optimizer_identity optimizer_of(const run_options& o) {
  auto identity = identity_with(o.optimizer, o.hyper);
  identity.weight_decay = o.weight_decay;
  identity.decay_vectors = o.no_decay == "none";
  return identity;
}

std::uint64_t samples_per_round(const run_options& o) {
  return o.target_batch_size * o.average_state_every;
}

std::uint64_t rounds_of(const run_options& o) {
  return o.epochs / o.average_state_every;
}

result<lr_schedule> schedule_of(const run_options& o) {
  auto parts = parse_schedule(o.schedule);
  if (!parts)
    return failure{ec::bad_config, "--schedule: '" + o.schedule + "' " + parts.error().detail};
  if (o.total_steps_in_epoch == 0)
    return make_schedule(std::move(*parts), o.lr, o.warmup_epochs, o.epochs);
  if (const auto& last = parts->back(); last.row->ends && !last.epochs)
    return failure{ec::bad_config,
                   "--schedule " + std::string{last.row->name}
                     + " needs its length with --total-steps-in-epoch, whose epochs are not those "
                       "of --epochs, which counts averages: write "
                     + std::string{last.row->name} + ":epochs=N"};
  return make_schedule(std::move(*parts), o.lr, o.warmup_epochs, 0);
}

std::optional<loss_scale_rule> loss_scale_of(const run_options& o) {
  if (o.loss_scale == "dynamic" || (o.loss_scale == "auto" && o.precision == "float16"))
    return loss_scale_rule{};
  if (o.loss_scale == "auto" || o.loss_scale == "off")
    return std::nullopt;
  auto number = parse_real(o.loss_scale);
  WAGGLE_CHECK(number.ok(), o.loss_scale); // the option was checked
  return constant_scale(*number);
}

const strategy_row& strategy_of(const run_options& o) {
  const auto* row = find_strategy(o.strategy);
  WAGGLE_CHECK(row != nullptr, o.strategy);
  return *row;
}

strategy_settings strategy_settings_of(const run_options& o) {
  strategy_settings how;
  if (auto numbers = strategy_numbers(o.strategy))
    how.numbers = std::move(*numbers);
  how.delay_gradients = o.delay_grad_averaging;
  how.coding = {static_cast<std::uint32_t>(o.low_rank), o.min_compression_ratio};
  how.delay_state = o.delay_state_averaging;
  how.epochs_per_round = o.average_state_every;
  how.steps_in_epoch = o.total_steps_in_epoch;
  how.steps_period = o.averaging_steps_period;
  how.time_period = static_cast<std::uint64_t>(o.averaging_time_period.count());
  how.average_gradients = o.average_gradients;
  auto names = o.average_opt_statistics;
  if (const auto& row = strategy_of(o); names == "auto")
    names = optimizer_of(o).amsgrad && !row.averaged_statistics.empty()
              ? "max_exp_avg_sq" // the step divides by its root, not by that of exp_avg_sq
              : row.averaged_statistics;
  if (names == "none")
    return how;
  std::istringstream list{names};
  for (std::string name; std::getline(list, name, ',');)
    if (!name.empty())
      how.statistics.push_back(name);
  return how;
}

bool elastic_bits(const run_options& o) {
  return o.group_bits == "auto" || (o.group_bits.empty() && o.groups == "moshpit");
}

namespace {

/// Between two averages.
constexpr std::uint64_t many_samples = std::uint64_t{1} << 40U;

failure bad(std::string why) {
  return {ec::bad_config, std::move(why)};
}

/// The names of the statistics that the optimizer keeps, of matrices or vectors; of all of them,
/// or of those of one kind.
std::vector<std::string> statistics_of(const run_options& o,
                                       std::optional<state_tensor::kind> of = std::nullopt) {
  std::vector<std::string> names;
  if (const auto* row = find_optimizer(o.optimizer))
    for (const auto& shape : {tensor_shape{2, 2}, tensor_shape{2}})
      for (const auto& kept : row->statistics(optimizer_of(o), shape))
        if ((!of || kept.what == *of) && std::ranges::find(names, kept.name) == names.end())
          names.push_back(kept.name);
  return names;
}

/// Options that the strategy does not use, but that were set, would be ignored silently.
status check_strategy(const run_options& o) {
  const auto& row = strategy_of(o);
  auto is_set = [&o](const char* name) {
    const auto* spec = find_option(name);
    return o.given.contains(name) && spec->get(o) != spec->default_text;
  };
  auto those = [](auto which) { return "--strategy " + listed(selected(strategy_table(), which)); };
  // Its peers share an anchor, and step by themselves between two outer steps.
  bool anchored = row.steps_each_pass() && !row.averages_parameters;
  auto on_time_grid = [](const strategy_row& r) {
    return r.counts_steps && r.steps_each_pass() && r.on_boundary == nullptr;
  };
  auto by_period = [](const strategy_row& r) { return r.counts_steps && r.averages_parameters; };
  auto tolerates = [](const strategy_row& r) { return r.steps_each_pass(); };
  bool overlaps =
    std::ranges::any_of(row.numbers, [](const named_number& n) { return n.name == "overlap"; });
  if (anchored && o.delay_grad_averaging)
    return bad(
      "--delay-grad-averaging belongs to --strategy collaborative: to compute on while the "
      "progress of --strategy "
      + std::string{row.name} + " is averaged, "
      + (overlaps ? "write " + std::string{row.name} + ":overlap=N"
                  : "it needs no option: between warm-up and cool-down it does; leave it out"));
  if (row.averages_parameters && o.delay_grad_averaging)
    return bad("--delay-grad-averaging belongs to --strategy collaborative: " + o.strategy
               + " averages no gradients; its rounds never delay training, unless "
                 "--delay-state-averaging is false; leave it out, or use --strategy collaborative");
  if (row.steps_each_pass() && o.delay_optimizer_step)
    return bad(
      "--delay-optimizer-step belongs to --strategy collaborative: with " + o.strategy
      + ", each pass needs the step before it; leave it out, or use --strategy collaborative");
  if (row.averages_parameters && o.low_rank > 0)
    return bad("--low-rank belongs to --strategy collaborative: " + o.strategy
               + " averages parameters, of which factors would be too inexact; use --codec, which "
                 "shortens them");
  if (auto schedule = schedule_of(o); row.steps_each_pass() && schedule && schedule->plateau())
    return bad("--schedule plateau belongs to --strategy collaborative: the peers of --strategy "
               + o.strategy
               + " step by themselves, without a loss of the swarm that would give all the same "
                 "rate; use --strategy collaborative, or a schedule that depends on the epoch");
  if (o.low_rank > 0 && o.aggregator != to_string(aggregator::mean))
    return bad("--low-rank and --aggregator " + o.aggregator
               + " exclude each other: what peers add from earlier rounds would look like "
                 "Byzantine outliers; use --codec with the aggregator, or --aggregator mean");
  if (o.low_rank == 0 && is_set("min-compression-ratio"))
    return bad("--min-compression-ratio needs --low-rank: it selects the matrices that --low-rank "
               "shortens; set --low-rank, or leave it out");
  if (row.steps_each_pass() && o.reuse_grad_buffers)
    return bad(
      "--reuse-grad-buffers belongs to --strategy collaborative: with " + o.strategy
      + " the optimizer steps with the gradient of each pass, so there is no second one to "
        "save; leave it out");
  for (const char* name : {"delay-state-averaging", "average-opt-statistics"})
    if (!row.averages_parameters && is_set(name))
      return bad(
        "--" + std::string{name} + " belongs to " + those(&strategy_row::averages_parameters)
        + (anchored
             ? ": with " + std::string{row.name}
                 + ", peers average their progress, and keep the statistics of their own "
                   "steps; leave it out"
             : ": with collaborative, all peers hold equal parameters and statistics anyway; "
               "leave it out"));
  if (!row.steps_each_pass() && is_set("max-epoch-difference"))
    return bad("--max-epoch-difference belongs to " + those(tolerates)
               + ": with collaborative, all peers hold equal parameters and statistics anyway; "
                 "leave it out");
  if (!row.averages_parameters && o.average_gradients)
    return bad("--average-gradients belongs to " + those(&strategy_row::averages_parameters)
               + ": --strategy " + o.strategy + " averages "
               + (anchored ? "progress, which is the sum of a peer's gradients; leave it out"
                           : "the gradient, and nothing else, anyway; leave it out"));
  auto instead =
    anchored ? "has numbers behind its name that say when peers average; use "
                 + std::string{row.name} + ":" + std::string{row.numbers.front().name} + "=N"
    : by_period(row) ? std::string{"averages every --averaging-steps-period; set that instead"}
    : row.counts_steps
      ? std::string{"averages after each pass; set --micro-batch instead"}
      : std::string{"averages every --target-batch-size samples; set that instead"};
  if (is_set("averaging-time-period") && !on_time_grid(row))
    return bad("--averaging-time-period belongs to " + those(on_time_grid) + ": " + o.strategy + " "
               + instead);
  if (is_set("averaging-steps-period") && !by_period(row))
    return bad("--averaging-steps-period belongs to " + those(by_period) + ": " + o.strategy + " "
               + instead);
  if (is_set("total-steps-in-epoch") && !by_period(row))
    return bad(
      "--total-steps-in-epoch belongs to " + those(by_period) + ": the epochs of " + o.strategy
      + (anchored           ? " end with its averages; leave it out"
         : row.counts_steps ? " have one pass of each peer; leave it out"
                            : " have --target-batch-size samples; set that, or use one of these "
                              "strategies"));
  if (is_set("average-state-every") && (row.counts_steps || !row.averages_parameters))
    return bad("--average-state-every belongs to --strategy local-updates: "
               + (row.counts_steps
                    ? o.strategy + " " + instead
                    : "with collaborative, all peers hold equal parameters after each update; "
                      "leave it out"));
  if (o.average_state_every > 1 && o.epochs % o.average_state_every != 0)
    return bad("--epochs " + std::to_string(o.epochs) + " is no multiple of --average-state-every "
               + std::to_string(o.average_state_every)
               + ", and a run ends with an average: use --epochs "
               + std::to_string((o.epochs / o.average_state_every + 1) * o.average_state_every));
  if (o.average_state_every > many_samples / o.target_batch_size)
    return bad("--average-state-every " + std::to_string(o.average_state_every)
               + " times --target-batch-size " + std::to_string(o.target_batch_size)
               + " are too many samples from one average to the next: lower one of them");
  if (!row.averages_parameters && o.groups == "moshpit")
    return bad("--groups moshpit belongs to " + those(&strategy_row::averages_parameters)
               + ": the peers of --strategy " + o.strategy
               + (anchored ? " share one anchor" : " apply one mean gradient")
               + ", so they are one group; use --groups one, or one of "
                 "these strategies");
  if (o.groups == "moshpit" && o.max_epoch_difference == 0)
    return bad("--groups moshpit needs --max-epoch-difference 1 or more: groups end their rounds "
               "one after another, so peers are an epoch apart for a while; raise it, or leave it "
               "out");
  if (row.counts_steps && is_set("target-batch-size"))
    return bad("--target-batch-size belongs to the other strategies: " + o.strategy + " "
               + instead);
  return check_optimizer_of_strategy(o);
}

/// The options that give the size of a pass.
std::string pass_of(const run_options& o) {
  return "--micro-batch " + std::to_string(o.micro_batch)
         + (o.replicas > 1 ? " times --replicas " + std::to_string(o.replicas) : "");
}

/// A run that begins with more passes than an epoch holds: some of its peers would contribute
/// nothing to it.
status check_first_epoch(const run_options& o) {
  auto needed = o.min_peers * samples_per_pass(o);
  if (strategy_of(o).counts_steps || o.auxiliary || needed <= samples_per_round(o))
    return done{};
  return bad("--target-batch-size " + std::to_string(o.target_batch_size)
             + " does not hold one pass of " + pass_of(o) + " of each of the --min-peers "
             + std::to_string(o.min_peers) + ", with which training begins: raise it to "
             + std::to_string(needed) + ", or lower one of the others");
}

/// Passes over the data need updates that say which samples they have.
status check_passes(const run_options& o) {
  auto name = o.strategy.substr(0, o.strategy.find(':')); // its numbers stand behind it
  const std::pair<bool, std::string> others[]{
    {name != "collaborative" && name != "data-parallel", "--strategy " + o.strategy},
    {o.epochs > 0, "--epochs"},
    {o.aggregator != to_string(aggregator::mean), "--aggregator " + o.aggregator},
    {o.low_rank > 0, "--low-rank"},
    {o.delay_grad_averaging, "--delay-grad-averaging"},
    {o.delay_optimizer_step, "--delay-optimizer-step"},
    {o.replicas > 1, "--replicas"},
    {o.reuse_grad_buffers, "--reuse-grad-buffers"}};
  for (const auto& [given, option] : others)
    if (o.passes > 0 && given)
      return bad("--passes and " + option
                 + " exclude each other: the mean of each update of --strategy collaborative or "
                   "data-parallel says which samples it has, and the next pass waits for it; leave "
                   "one of them out");
  return done{};
}

} // namespace

status check_optimizer_of_strategy(const run_options& o) {
  const auto& row = strategy_of(o);
  if (!row.optimizer.empty() && o.optimizer != row.optimizer)
    return bad("--strategy " + o.strategy + " is for --optimizer " + std::string{row.optimizer}
               + ": use it, or --strategy " + (row.counts_steps ? "decentralized" : "local-updates")
               + ", which is for any");
  auto kept = statistics_of(o);
  auto averaged = strategy_settings_of(o).statistics;
  for (auto name = averaged.begin(); name != averaged.end(); ++name)
    if (std::find(averaged.begin(), name, *name) != name)
      return bad("--average-opt-statistics names " + *name + " twice");
  for (const auto& name : averaged)
    if (std::ranges::find(kept, name) == kept.end())
      return bad("--average-opt-statistics " + name + ": " + o.optimizer
                 + (kept.empty() ? " keeps none"
                                 : " keeps " + joined(kept, ", ") + "; the nearest is "
                                     + nearest(name, kept)));
  return done{};
}

std::string unaveraged_squares(const run_options& o) {
  if (!strategy_of(o).averages_parameters || o.average_opt_statistics != "auto"
      || !strategy_settings_of(o).statistics.empty())
    return {};
  auto squares = statistics_of(o, state_tensor::kind::square);
  if (squares.empty())
    return {};
  if (optimizer_of(o).amsgrad) // the step divides by the root of the last one
    squares = {squares.back()};
  return "the peers average parameters, but not " + joined(squares, " and ") + ", by which "
         + o.optimizer
         + " scales the steps of each peer: where their samples differ, they may converge poorly; "
           "--average-opt-statistics "
         + joined(squares, ",") + " on all peers averages that, and none says that this is meant";
}

status check_combinations(const run_options& o) {
  if (auto fits = check_strategy(o); !fits)
    return fits;
  if (o.client_mode && o.initial_peers.empty())
    return bad(
      "--client-mode needs --initial-peers: other peers cannot reach this one, so it has to "
      "know which ones to dial");
  if (o.client_mode && !o.announce.empty())
    return bad("--client-mode and --announce exclude each other: other peers do not dial a client; "
               "leave out --announce, or --client-mode if they can reach that address");
  if (o.client_mode && o.auxiliary)
    return bad(
      "--client-mode and --auxiliary exclude each other: an auxiliary reduces for other "
      "peers, which have to reach it; leave out --auxiliary, or --client-mode if they can");
  if (o.auxiliary && o.given.contains("micro-batch"))
    return bad("--auxiliary and --micro-batch exclude each other: an auxiliary makes no passes, it "
               "only reduces for the others; leave out --micro-batch, or --auxiliary");
  if (o.auxiliary && o.error_feedback)
    return bad("--auxiliary and --error-feedback exclude each other: an auxiliary sends nothing of "
               "its own that a codec could change; leave out --error-feedback on this peer");
  auto how = parse_aggregator(o.aggregator);
  if (how)
    if (auto promise = check_aggregation(
          {*how, static_cast<std::uint32_t>(o.faulty_max), o.check_sums}, o.target_group_size);
        !promise)
      return bad("--aggregator " + o.aggregator + " with --faulty-max "
                 + std::to_string(o.faulty_max) + ": " + promise.error().detail);
  if (o.faulty_max == 0 && o.check_sums > 0 && o.check_sums != run_options{}.check_sums)
    return bad("--check-sums needs --faulty-max: without Byzantine members, no reducer lies; set "
               "--faulty-max N, or leave --check-sums out");
  if (samples_per_pass(o) > o.target_batch_size && !strategy_of(o).counts_steps)
    return bad(pass_of(o) + " is larger than --target-batch-size "
               + std::to_string(o.target_batch_size)
               + ": one pass would end more than one epoch; lower the first, or raise the second");
  if (o.min_peers > o.target_group_size && o.groups == "one")
    return bad("--min-peers is larger than --target-group-size: no group ever has that many "
               "members; lower the first, or raise the second");
  if (auto enough = check_first_epoch(o); !enough)
    return enough;
  if (auto counts = check_passes(o); !counts)
    return counts;
  if (o.wait_for_peers > 0ms && o.min_peers == 1)
    return bad("--wait-for-peers needs --min-peers 2 or more: there is nothing to wait for; raise "
               "--min-peers, or leave it out");
  if (o.min_refresh_period > o.max_refresh_period)
    return bad(
      "--min-refresh-period is longer than --max-refresh-period: lower the first, or raise "
      "the second");
  if (o.min_group_size > o.target_group_size)
    return bad("--min-group-size is larger than --target-group-size: no group could ever begin; "
               "lower the first, or raise the second");
  if (o.min_contributors > o.target_group_size)
    return bad("--min-contributors is larger than --target-group-size: every round would fail; "
               "lower the first, or raise the second");
  if (o.matchmaking_time >= o.averaging_timeout)
    return bad("--matchmaking-time must be shorter than --averaging-timeout: no time would be left "
               "to average; lower the first, or raise the second");
  // moshpit_averager searches for as long.
  if (auto search = 2 * o.matchmaking_time; o.groups == "moshpit" && search >= o.averaging_timeout)
    return bad("--averaging-timeout " + text_of(o.averaging_timeout)
               + " leaves no time to average with --groups moshpit, where the search for a group "
                 "may take twice the --matchmaking-time, "
               + text_of(search) + ": raise the first, or lower the second");
  if (o.allreduce_timeout > o.averaging_timeout)
    return bad("--allreduce-timeout is longer than --averaging-timeout, which ends the round "
               "first: lower the first, or raise the second");
  if (o.allreduce_timeout > 0ms && o.allreduce_timeout <= 2 * o.stall_timeout)
    return bad("--allreduce-timeout must be longer than twice --stall-timeout: a round would end "
               "before it could leave out a reducer that is silent; raise the first, or lower the "
               "second");
  if (o.given.contains("request-timeout") && o.request_timeout >= o.averaging_timeout)
    return bad("--request-timeout must be shorter than --averaging-timeout: one peer that does not "
               "answer would use up the round's time; lower the first, or raise the second");
  if (o.replicas > 1 && o.delay_optimizer_step)
    return bad("--replicas and --delay-optimizer-step exclude each other: all replicas read the "
               "parameters that the optimizer changes; use --delay-grad-averaging, which hides the "
               "round, or --replicas 1");
  if (!o.devices.empty() && o.given.contains("device"))
    return bad("--devices and --device exclude each other: the first of --devices is that of the "
               "first replica; leave out --device");
  if (auto devices = pieces_of(o.devices, ',').size(); !o.auxiliary && devices > o.replicas)
    return bad("--devices names " + std::to_string(devices) + " devices and --replicas uses only "
               + std::to_string(o.replicas) + " of them: raise --replicas, or name fewer");
  if (o.auxiliary && o.replicas > 1)
    return bad("--auxiliary and --replicas exclude each other: an auxiliary makes no passes; leave "
               "out --replicas, or --auxiliary");
  auto offload = o.given.find("offload-optimizer");
  if (o.delay_optimizer_step && offload != o.given.end() && !o.offload_optimizer)
    return bad("--delay-optimizer-step needs the second copy of the parameters that "
               "--offload-optimizer makes: leave out --offload-optimizer false");
  if (const auto* model = find_model(o.model))
    if (auto fits = model->check(shape_of(o)); !fits)
      return fits;
  if (o.expected_peers > o.target_group_size)
    return bad("--expected-peers is larger than --target-group-size: no group ever has that many "
               "members; lower the first, or raise the second");
  const auto* optimizer = find_optimizer(o.optimizer);
  for (const auto& hyper : hyper_parameters())
    if (optimizer != nullptr && o.hyper.contains(std::string{hyper.name})
        && optimizer->find(hyper.name) == nullptr)
      return bad("--" + std::string{hyper.name} + " belongs to --optimizer " + users_of(hyper)
                 + "; " + o.optimizer + " does not use it; leave it out");
  if (auto fits = check_optimizer(optimizer_of(o)); !fits)
    return fits;
  if (o.precision == "float16" && o.loss_scale == "off")
    return bad("--precision float16 needs --loss-scale: small gradients would become 0; use auto");
  if (o.kill_after > 0ms && o.peers < 2)
    return bad(
      "--kill-after needs --peers 2 or more: no peer would be left; raise --peers, or leave "
      "it out");
  if (o.duration > 0ms && o.kill_after >= o.duration)
    return bad("--kill-after must be shorter than --duration: it would never happen; lower the "
               "first, or raise the second");
  if (o.duration > 0ms && o.join_after >= o.duration)
    return bad("--join-after must be shorter than --duration: it would never happen; lower the "
               "first, or raise the second");
  if (auto schedule = schedule_of(o); !schedule)
    return schedule.error();
  if (o.epochs != 0 && o.total_steps_in_epoch == 0 && o.warmup_epochs > o.epochs)
    return bad("--warmup-epochs is larger than --epochs: the run would end before the rate has "
               "reached --lr; lower the first, or raise the second");
  return done{};
}

} // namespace waggle
