#include "runtime/matchmaking/group_terms.hpp"

#include <algorithm>

#include "runtime/core/try.hpp"
#include "runtime/crypto/digest.hpp"

namespace waggle {

open_group::terms terms_of(const matchmaking_config& config, const codec_plan& codecs,
                           const codec_plan& second_round) {
  open_group::terms terms;
  terms.prefix = config.prefix;
  terms.schema = group_schema(config, codecs);
  if (!second_round.empty())
    terms.schema = sha256_stream{}
                     .add("waggle two rounds")
                     .add(terms.schema.view())
                     .add(group_schema(config, second_round).view())
                     .finish();
  terms.codecs = codecs;
  terms.second_round = second_round;
  terms.reduce_by = config.reduce_by;
  terms.min_contributors = config.min_contributors;
  terms.members_max = std::min(config.target_group_size, round_members_max);
  bool reduces = config.mode != member_mode::client && config.bandwidth.value_or(1) > 0;
  terms.partition = {config.parts, config.min_vector_size, reduces, {}};
  return terms;
}

result<open_group::terms> adopted_terms(const matchmaking_config& config, const round_plan& plan,
                                        const digest& schema, std::size_t members_max,
                                        const codec_plan& second_round,
                                        std::uint64_t elements_max) {
  WAGGLE_TRY(valid, validate_plan(plan));
  if (plan.prefix != config.prefix)
    return failure{ec::schema_mismatch, "plan: it is for another vector"};
  if (schema.is_zero())
    return failure{ec::schema_mismatch, "plan: it does not carry its members' schema"};
  if (!second_round.empty()) { // a plan like this one, of another vector
    auto second = plan;
    second.codecs = second_round;
    second.elements = elements_of(second_round);
    second.shares.assign(plan.shares.size(), 0);
    for (std::size_t i = 0; i < plan.shares.size(); ++i)
      if (plan.members[i].mode != member_mode::client) {
        second.shares[i] = second.elements;
        break;
      }
    WAGGLE_TRY(valid, validate_plan(second));
  }
  auto elements = std::max(plan.elements, elements_of(second_round));
  if (elements > elements_max)
    return failure{ec::oversize, "its vectors have " + std::to_string(elements)
                                   + " values, we reduce up to " + std::to_string(elements_max)};
  auto terms = terms_of(config, plan.codecs, second_round);
  terms.schema = schema;
  terms.reduce_by = plan.reduce_by;
  terms.min_contributors = plan.min_contributors;
  terms.members_max = members_max == 0 ? round_members_max : members_max;
  terms.partition.parts = {plan.part_elements, false}; // within what its members agreed on
  return terms;
}

} // namespace waggle
