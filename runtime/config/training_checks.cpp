#include "runtime/config/options.hpp"
#include "runtime/training/strategy.hpp"

namespace waggle {

status check_training_options(const run_options& o) {
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
  const auto* strategy = find_strategy(o.strategy);
  if (o.alpha != 1 && strategy != nullptr && !strategy->averages_parameters)
    return bad("--alpha belongs to strategies that average parameters: the peers of --strategy "
               + o.strategy + " all apply the same mean gradient; leave it out");
  if (o.alpha <= 0 || o.alpha > 1)
    return bad("--alpha must be more than 0 and at most 1 in training: otherwise this peer would "
               "never approach the others, or overshoot their mean");
  return done{};
}

} // namespace waggle
