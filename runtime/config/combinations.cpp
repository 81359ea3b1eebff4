// Options that contradict or need each other.

#include <algorithm>

#include "runtime/averaging/aggregation.hpp"
#include "runtime/config/options.hpp"
#include "runtime/config/values.hpp"
#include "runtime/core/named.hpp"
#include "runtime/training/model_table.hpp"
#include "runtime/training/optimizer_table.hpp"
#include "runtime/training/safetensors.hpp"
#include "runtime/training/schedule.hpp"
#include "runtime/training/strategy.hpp"

namespace waggle {

namespace {

failure bad(std::string why) {
  return {ec::bad_config, std::move(why)};
}

struct rule {
  bool broken;
  std::string sentence;
};

status first_broken(const std::vector<rule>& rules) {
  auto broken = std::ranges::find_if(rules, &rule::broken);
  return broken == rules.end() ? status{done{}} : bad(broken->sentence);
}

/// `how`: "is larger than". `why`: begins with what follows the second name.
rule order(bool wrong, const std::string& one, const char* how, const std::string& other,
           const std::string& why) {
  return {wrong,
          "--" + one + " " + how + " --" + other + why + "; lower the first, or raise the second"};
}

bool differs(const run_options& o, std::string_view name) {
  const auto* spec = find_option(name);
  return spec->get(o) != spec->default_text;
}

/// What the rows of the table say of one option. Those that the strategy does not use, but that
/// were set, would be ignored silently.
status check_each(const run_options& o) {
  const auto& strategy = *o.strategy;
  for (const auto& spec : option_table()) {
    if (!differs(o, spec.name))
      continue;
    auto users =
      selected(strategy_table(), [&](const strategy_row& row) { return row.uses(spec.name); });
    if (!users.empty() && !strategy.uses(spec.name))
      return bad("--" + spec.name + " belongs to --strategy " + listed(users) + ": --strategy "
                 + std::string{strategy.name} + " " + std::string{strategy.rounds}
                 + "; leave it out, or use one of these");
    for (const auto& needed : spec.needs)
      if (!needed.met(o))
        return bad("--" + spec.name + " " + needed.unless);
  }
  return done{};
}

status check_aggregator(const run_options& o) {
  auto how = o.matchmaking.reduce_by;
  how.check_share = o.check_sums;
  auto promise = check_aggregation(how, o.matchmaking.target_group_size);
  return promise ? promise
                 : bad("--aggregator " + std::string{to_string(how.how)} + " with --faulty-max "
                       + std::to_string(how.faulty_max) + ": " + promise.error().detail);
}

/// The size of a pass, with its options if they were set.
std::string pass_of(const run_options& o) {
  if (o.samples_per_pass() == 1 && !o.given.contains("micro-batch"))
    return "one sample";
  return "one pass of --micro-batch " + std::to_string(o.micro_batch)
         + (o.replicas > 1 ? " times --replicas " + std::to_string(o.replicas) : "");
}

/// The samples between two averages, where these are counted.
status check_samples(const run_options& o) {
  constexpr std::uint64_t samples_max = std::uint64_t{1} << 40U; // between two averages
  auto every = o.how.epochs_per_round;
  auto target = "--target-batch-size " + std::to_string(o.target_batch_size);
  auto beginning = o.min_peers * o.samples_per_pass();
  bool counts = !o.strategy->counts_steps();
  return first_broken(
    {{every > 1 && o.epochs % every != 0,
      "--epochs " + std::to_string(o.epochs) + " is no multiple of --average-state-every "
        + std::to_string(every) + ", and a run ends with an average: use --epochs "
        + std::to_string((o.epochs / every + 1) * every)},
     {every > samples_max / o.target_batch_size,
      "--average-state-every " + std::to_string(every) + " times " + target
        + " are too many samples from one average to the next: lower one of them"},
     {counts && o.samples_per_pass() > o.target_batch_size,
      pass_of(o) + " is larger than " + target
        + ", so that it would end more than one epoch; lower the first, or raise the second"},
     // Some of the peers would contribute nothing to the run's first epoch.
     {counts && !o.auxiliary && beginning > o.samples_per_round(),
      target + " does not hold " + pass_of(o) + " of each of the --min-peers "
        + std::to_string(o.min_peers) + ", with which training begins: raise it to "
        + std::to_string(beginning) + ", or lower one of the others"}});
}

/// Passes over the data need updates that say which samples they have.
status check_passes(const run_options& o) {
  for (const char* other : {"epochs", "aggregator", "low-rank", "delay-grad-averaging",
                            "delay-optimizer-step", "replicas", "reuse-grad-buffers"})
    if (o.passes > 0 && differs(o, other))
      return bad(
        "--passes and --" + std::string{other}
        + " exclude each other: the mean of each update says which samples it has, and the "
          "next pass waits for it; leave one of them out");
  return done{};
}

/// A codec that carries few values.
status check_sparse(const run_options& o) {
  if (!uses(o.averaging.codec, sends_contributions_back))
    return done{};
  auto codec = "--codec " + to_string(o.averaging.codec);
  const auto* aggregator = find_row(o.matchmaking.reduce_by.how);
  return first_broken(
    {{aggregator->by_value && aggregator->robust(),
      codec + " and --aggregator " + std::string{aggregator->name}
        + " exclude each other: most of the values that a peer sends are 0, and so would be almost "
          "every result; use --aggregator median_norm, or --codec e3m0"},
     {differs(o, "check-sums") && o.check_sums > 0
        && !uses(o.averaging.codec, [](codec_id one) { return !sends_contributions_back(one); }),
      codec
        + " and --check-sums exclude each other: every member checks all sums of what that codec "
          "sends; leave out --check-sums"},
     {o.how.coding.rank > 0,
      codec
        + " and --low-rank exclude each other: of factors, all values count; leave out "
          "--low-rank, or use --codec e3m0"}});
}

/// What is sent once is not sent again.
status check_sparse_training(const run_options& o) {
  if (!uses(o.averaging.codec, sends_contributions_back))
    return done{};
  auto pair = "--codec " + to_string(o.averaging.codec) + " and --strategy " + o.strategy.text();
  auto what = o.strategy.make(o.how).averages.what;
  return first_broken(
    {{what == lane_content::parameters,
      pair
        + " exclude each other: most parameters would be averaged as 0; use --strategy diloco, "
          "or --codec blockwise8"},
     {what == lane_content::gradient && o.averaging.error_feedback == 0 && !o.auxiliary,
      pair
        + " need --error-feedback: without it most of each gradient is lost; use "
          "--error-feedback 0.95, --strategy diloco, or --codec e3m0"}});
}

/// What needs the whole gradient, or hides the round in another way.
status check_buckets(const run_options& o) {
  const std::pair<const char*, const char*> others[]{
    {"low-rank", "factors are computed of whole gradients"},
    {"error-feedback", "it changes the whole gradient before it is sent"},
    {"delay-grad-averaging", "it hides all of a round behind a pass"},
    {"delay-optimizer-step", "passes go on beside the updates"},
    {"reuse-grad-buffers", "the round would change what passes add to"},
    {"replicas", "their gradients are added when all passes are over"},
    {"passes", "the mean says which samples it has when the pass is over"}};
  bool in_buckets = o.strategy.make(o.how).averages.in_buckets;
  for (const auto& [option, why] : others)
    if (in_buckets && differs(o, option))
      return bad("--strategy " + o.strategy.text() + " and --" + option
                 + " exclude each other: " + why + "; leave out --" + option
                 + ", or use --strategy data-parallel without buckets");
  return done{};
}

status check_pairs(const run_options& o) {
  auto given = [&o](const char* name) { return o.given.contains(name); };
  const auto& search = o.matchmaking;
  auto round = o.averaging_timeout;
  auto search_time =
    2 * o.matchmaking.min_matchmaking_time; // moshpit_averager searches for as long
  auto schedule = schedule_of(o);
  return first_broken(
    {{o.auxiliary && given("micro-batch"),
      "--auxiliary and --micro-batch exclude each other: an auxiliary makes no passes, it only "
      "reduces for the others; leave out --micro-batch, or --auxiliary"},
     {!o.devices.empty() && given("device"),
      "--devices and --device exclude each other: the first of --devices is that of the first "
      "replica; leave out --device"},
     {o.how.coding.rank > 0 && o.strategy.make(o.how).averages.fragments > 1,
      "--low-rank and the fragments of --strategy " + o.strategy.text()
        + " exclude each other: factors have two rounds of their own; leave out --low-rank, or the "
          "fragments"},
     {o.passes > 0 && o.strategy.make(o.how).averages.fragments > 1,
      "--passes and the fragments of --strategy " + o.strategy.text()
        + " exclude each other: a round says which samples it has, and a fragment has learned from "
          "some of earlier ones; leave out --passes, or the fragments"},
     {to_string(o.averaging.codec).find("list:") != std::string::npos
        && o.strategy.make(o.how).averages.fragments > 1,
      "--codec list: and the fragments of --strategy " + o.strategy.text()
        + " exclude each other: the list would begin anew with each; use map: or size:"},
     {!o.auxiliary && std::ssize(o.devices) > o.replicas,
      "--devices names " + std::to_string(o.devices.size()) + " devices and --replicas uses only "
        + std::to_string(o.replicas) + " of them: raise --replicas, or name fewer"},
     {o.format == precision::float16 && o.loss_scale && !*o.loss_scale,
      "--precision float16 needs --loss-scale: small gradients would become 0; use auto"},
     order(!o.many_groups && o.min_peers > search.target_group_size, "min-peers", "is larger than",
           "target-group-size", ": no group ever has that many members"),
     order(o.expected_peers > search.target_group_size, "expected-peers", "is larger than",
           "target-group-size", ": no group ever has that many members"),
     order(search.min_group_size > search.target_group_size, "min-group-size", "is larger than",
           "target-group-size", ": no group could ever begin"),
     order(search.min_contributors > search.target_group_size, "min-contributors", "is larger than",
           "target-group-size", ": every round would fail"),
     order(o.ledger.refresh_min > o.ledger.refresh_max, "min-refresh-period", "is longer than",
           "max-refresh-period", ""),
     order(search.min_matchmaking_time >= round, "matchmaking-time", "must be shorter than",
           "averaging-timeout", ": no time would be left to average"),
     {o.many_groups && search_time >= round,
      "--averaging-timeout " + text_of(round)
        + " leaves no time to average with --groups moshpit, where the search for a group may take "
          "twice the --matchmaking-time, "
        + text_of(search_time) + ": raise the first, or lower the second"},
     order(o.allreduce_timeout > round, "allreduce-timeout", "is longer than", "averaging-timeout",
           ", which ends the round first"),
     {o.allreduce_timeout > 0ms && o.allreduce_timeout <= 2 * o.averaging.round.stall_timeout,
      "--allreduce-timeout must be longer than twice --stall-timeout: a round would end before it "
      "could leave out a reducer that is silent; raise the first, or lower the second"},
     order(given("request-timeout") && search.request_timeout >= round, "request-timeout",
           "must be shorter than", "averaging-timeout",
           ": one peer that does not answer would use up the round's time"),
     order(o.duration > 0ms && o.kill_after >= o.duration, "kill-after", "must be shorter than",
           "duration", ": it would never happen"),
     order(o.duration > 0ms && o.join_after >= o.duration, "join-after", "must be shorter than",
           "duration", ": it would never happen"),
     {!schedule, schedule ? "" : schedule.error().detail},
     {schedule && schedule->plateau() && o.strategy->steps_each_pass(),
      "--schedule plateau belongs to --strategy collaborative: the peers of --strategy "
        + o.strategy.text()
        + " step by themselves, without a loss of the swarm that would give all the same rate; use "
          "--strategy collaborative, or a schedule that depends on the epoch"},
     {o.warmup_epochs > schedule_length(o) && schedule_length(o) > 0,
      "--warmup-epochs is larger than the " + std::to_string(schedule_length(o))
        + " epochs of --schedule in the run, which would end before the rate has reached --lr: "
          "lower it, or make the run longer (--epochs)"}});
}

} // namespace

status check_combinations(const run_options& o) {
  for (auto check : {check_each, check_optimizer_of_strategy, check_aggregator, check_samples,
                     check_passes, check_pairs, check_sparse})
    if (auto fits = check(o); !fits)
      return fits;
  if (auto fits = check_optimizer(optimizer_of(o)); !fits)
    return fits;
  const auto* model = find_model(o.model);
  return model != nullptr ? model->check(o) : done{};
}

status check_training_options(const run_options& o) {
  for (auto check : {check_buckets, check_sparse_training})
    if (auto fits = check(o); !fits)
      return fits;
  // One group has no matchmaker (node.cpp), whose options these are.
  for (const char* name : {"group-bits", "matchmaking-time", "min-group-size"})
    if (!o.many_groups && o.given.contains(name) && differs(o, name))
      return bad("--" + std::string{name}
                 + " is for groups that are searched for: with --groups one the peers of a "
                   "training run are one group, which peers enter at any time (--min-peers delays "
                   "its start); leave it out, or use --groups moshpit with a --strategy that "
                   "averages parameters");
  return first_broken(
    {{is_safetensors(o.model), "--model " + o.model
                                 + " has values, but no model that uses them, and is read by "
                                   "waggle plan alone: use a built-in model, or FILE.pt"},
     {o.averaging_alpha != 1 && !o.strategy->averages_parameters(),
      "--alpha belongs to strategies that average parameters: the peers of --strategy "
        + o.strategy.text() + " all apply the same mean; leave it out"},
     {o.averaging_alpha <= 0 || o.averaging_alpha > 1,
      "--alpha must be more than 0 and at most 1 in training: otherwise this peer would never "
      "approach the others, or overshoot their mean"}});
}

} // namespace waggle
