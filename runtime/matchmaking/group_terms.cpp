#include "runtime/matchmaking/group_terms.hpp"

#include <algorithm>

namespace waggle {

open_group::terms terms_of(const matchmaking_config& config, const codec_plan& codecs) {
  open_group::terms terms;
  terms.prefix = config.prefix;
  terms.schema = group_schema(config, codecs);
  terms.codecs = codecs;
  terms.reduce_by = config.reduce_by;
  terms.min_contributors = config.min_contributors;
  terms.members_max = std::min(config.target_group_size, round_members_max);
  bool reduces = config.mode != member_mode::client && config.bandwidth.value_or(1) > 0;
  terms.partition = {config.parts, config.min_vector_size, reduces, {}};
  return terms;
}

result<open_group::terms> adopted_terms(const matchmaking_config& config, const round_plan& plan,
                                        const digest& schema, std::size_t members_max,
                                        std::uint64_t elements_max) {
  if (auto valid = validate_plan(plan); !valid)
    return valid.error();
  if (plan.prefix != config.prefix)
    return failure{ec::schema_mismatch, "plan: it is for another vector"};
  if (schema.is_zero())
    return failure{ec::schema_mismatch, "plan: it does not carry its members' schema"};
  if (plan.elements > elements_max)
    return failure{ec::oversize, "its vectors have " + std::to_string(plan.elements)
                                   + " values, we reduce up to " + std::to_string(elements_max)};
  auto terms = terms_of(config, plan.codecs);
  terms.schema = schema;
  terms.reduce_by = plan.reduce_by;
  terms.min_contributors = plan.min_contributors;
  terms.members_max = members_max == 0 ? round_members_max : members_max;
  terms.partition.parts = {plan.part_elements, false}; // within what its members agreed on
  return terms;
}

} // namespace waggle
