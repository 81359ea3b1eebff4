#include "runtime/matchmaking/group_terms.hpp"

#include <algorithm>
#include <array>

#include "runtime/core/try.hpp"
#include "runtime/crypto/digest.hpp"

namespace waggle {

result<std::vector<codec_plan>>
vectors_of(const codec_choice& codec, tensor_role role, std::uint64_t elements,
           std::span<const std::shared_ptr<const std::vector<tensor_info>>> tensors,
           const two_round_coding* coding) {
  const std::array<tensor_info, 1> whole{{{"0", elements, role}}};
  std::vector<std::span<const tensor_info>> parts;
  if (coding != nullptr)
    parts = {coding->first_tensors(), coding->second_tensors()};
  else if (tensors.empty())
    parts = {whole};
  else
    for (const auto& each : tensors)
      parts.emplace_back(*each);
  std::vector<codec_plan> vectors;
  std::uint64_t sent = 0;
  for (auto part : parts) {
    WAGGLE_TRY(codecs, plan_codecs(codec, part));
    sent += elements_of(*codecs);
    vectors.push_back(*std::move(codecs));
  }
  if (coding == nullptr && sent != elements)
    return failure{ec::bad_config, "the tensors do not add up to the vector"};
  return vectors;
}

open_group::terms terms_of(const matchmaking_config& config, std::vector<codec_plan> vectors,
                           bool all_each_epoch) {
  open_group::terms terms{.prefix = config.prefix, .schema = group_schema(config, vectors.front())};
  if (vectors.size() > 1) {
    sha256_stream all;
    all.add(all_each_epoch ? "waggle two rounds" : "waggle vectors in turn");
    for (const auto& codecs : vectors)
      all.add(group_schema(config, codecs).view());
    terms.schema = all.finish();
  }
  terms.vectors = std::move(vectors);
  terms.all_each_epoch = all_each_epoch;
  terms.reduce_by = config.reduce_by;
  terms.min_contributors = config.min_contributors;
  terms.members_max = std::min(config.target_group_size, round_members_max);
  bool reduces = config.mode != member_mode::client && config.bandwidth.value_or(1) > 0;
  terms.partition = {config.parts, config.min_vector_size, reduces, {}};
  return terms;
}

result<open_group::terms> adopted_terms(const matchmaking_config& config, const round_plan& plan,
                                        const digest& schema, std::size_t members_max,
                                        std::vector<codec_plan> vectors, bool all_each_epoch,
                                        std::uint64_t elements_max) {
  WAGGLE_TRY(valid, validate_plan(plan));
  if (plan.prefix != config.prefix)
    return failure{ec::schema_mismatch, "plan: it is for another vector"};
  if (schema.is_zero())
    return failure{ec::schema_mismatch, "plan: it does not carry its members' schema"};
  if (all_each_epoch && vectors.size() != 2)
    return failure{ec::protocol_violation, "plan: two rounds an epoch are of two vectors"};
  if (vectors.empty())
    vectors = {plan.codecs};
  std::uint64_t longest = 0;
  for (const auto& codecs : vectors) { // a plan like this one, of another vector
    auto other = plan;
    other.codecs = codecs;
    other.elements = elements_of(codecs);
    other.shares.assign(plan.shares.size(), 0);
    for (std::size_t i = 0; i < plan.shares.size(); ++i)
      if (plan.members[i].mode != member_mode::client) {
        other.shares[i] = other.elements;
        break;
      }
    WAGGLE_TRY(valid, validate_plan(other));
    longest = std::max(longest, other.elements);
  }
  if (longest > elements_max)
    return failure{ec::oversize, "its vectors have " + std::to_string(longest)
                                   + " values, we reduce up to " + std::to_string(elements_max)};
  auto terms = terms_of(config, std::move(vectors), all_each_epoch);
  terms.schema = schema;
  terms.reduce_by = plan.reduce_by;
  terms.min_contributors = plan.min_contributors;
  terms.members_max = members_max == 0 ? round_members_max : members_max;
  terms.partition.parts = {plan.part_elements, false}; // within what its members agreed on
  return terms;
}

} // namespace waggle
