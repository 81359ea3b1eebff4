#include <tuple>

#include "runtime/config/options.hpp"
#include "runtime/training/strategy.hpp"

namespace waggle {

namespace {

/// What needs the whole gradient, or hides the round in another way.
status check_buckets(const run_options& o) {
  if (!strategy_of(o).make(strategy_settings_of(o)).averages.in_buckets)
    return done{};
  const std::tuple<bool, std::string, const char*> others[]{
    {o.low_rank > 0, "--low-rank", "factors are computed of whole gradients"},
    {o.error_feedback, "--error-feedback", "it changes the whole gradient before it is sent"},
    {o.delay_grad_averaging, "--delay-grad-averaging", "it hides all of a round behind a pass"},
    {o.delay_optimizer_step, "--delay-optimizer-step", "passes go on beside the updates"},
    {o.reuse_grad_buffers, "--reuse-grad-buffers", "the round would change what passes add to"},
    {o.replicas > 1, "--replicas", "their gradients are added when all passes are over"},
    {o.passes > 0, "--passes", "the mean says which samples it has when the pass is over"}};
  for (const auto& [given, option, why] : others)
    if (given)
      return failure{ec::bad_config, "--strategy " + o.strategy + " and " + option
                                       + " exclude each other: " + why + "; leave out " + option
                                       + ", or use --strategy data-parallel without buckets"};
  return done{};
}

} // namespace

status check_training_options(const run_options& o) {
  if (auto fits = check_buckets(o); !fits)
    return fits;
  auto bad = [](std::string why) { return failure{ec::bad_config, std::move(why)}; };
  if (!o.group_bits.empty() && o.groups == "one")
    return bad("--group-bits is for several groups: with --groups one the peers of a training run "
               "are one group; use --groups moshpit with a --strategy that averages parameters");
  // One group has no matchmaker (node.cpp), whose options these are.
  const std::pair<const char*, const char*> of_the_search[]{
    {"matchmaking-time", "which peers enter at any time"},
    {"min-group-size", "which trains with any number of members (--min-peers delays its start)"}};
  for (const auto& [name, why] : of_the_search) {
    const auto* spec = find_option(name);
    if (o.groups == "one" && o.given.contains(name) && spec->get(o) != spec->default_text)
      return bad("--" + std::string{name}
                 + " is for groups that are searched for: with --groups one the peers of a "
                   "training run are one group, "
                 + why
                 + "; leave it out, or use --groups moshpit with a --strategy that averages "
                   "parameters");
  }
  if (o.alpha != 1 && !strategy_of(o).averages_parameters)
    return bad("--alpha belongs to strategies that average parameters: the peers of --strategy "
               + o.strategy + " all apply the same mean gradient; leave it out");
  if (o.alpha <= 0 || o.alpha > 1)
    return bad("--alpha must be more than 0 and at most 1 in training: otherwise this peer would "
               "never approach the others, or overshoot their mean");
  return done{};
}

} // namespace waggle
