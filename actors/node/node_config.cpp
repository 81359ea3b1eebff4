#include <set>

#include "actors/node/node.hpp"
#include "runtime/core/try.hpp"

namespace waggle {

status check_averaging_parts(const node_config::averaging_parts& parts, bool client_mode) {
  WAGGLE_TRY(group, check_matchmaking_config(parts.matchmaking, client_mode));
  WAGGLE_TRY(rounds, check_averaging_config(parts.averaging));
  if (parts.averaging.auxiliary != (parts.matchmaking.mode == member_mode::auxiliary))
    return failure{ec::bad_config, "auxiliary: averaging and matchmaking disagree"};
  return done{};
}

status check_node_config(const node_config& config) {
  if (config.training && !config.averaging)
    return failure{ec::bad_config, "a peer that trains needs an averager"};
  if (config.helping) {
    if (config.averaging || config.training || config.client_mode)
      return failure{ec::bad_config,
                     "only a peer without a model that others can reach reduces for "
                     "clients"};
    const auto& parts = config.helping->averaging;
    if (parts.matchmaking.mode != member_mode::auxiliary || !parts.averaging.auxiliary)
      return failure{ec::bad_config, "a peer that reduces for clients is an auxiliary"};
    WAGGLE_TRY(valid, check_averaging_config(parts.averaging));
    return check_matchmaking_config(parts.matchmaking, false);
  }
  if (!config.averaging && !config.takes_averagers && !config.further_averaging.empty())
    return failure{ec::bad_config, "further averagers need a first one"};
  auto all = config.further_averaging;
  if (config.averaging)
    all.insert(all.begin(), *config.averaging);
  std::set<std::string> seen;
  for (const auto& parts : all) {
    if (!seen.insert(parts.matchmaking.prefix).second)
      return failure{ec::bad_config, "two averagers of one peer have the prefix '"
                                       + parts.matchmaking.prefix + "': give each its own"};
    WAGGLE_TRY(valid, check_averaging_parts(parts, config.client_mode));
  }
  return done{};
}

} // namespace waggle
