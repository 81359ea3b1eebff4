#include "actors/program/node_options.hpp"

#include <thread>

#include "runtime/config/options.hpp"
#include "runtime/core/huge_pages.hpp"

namespace waggle {

node_config::averaging_parts averaging_from(const run_options& o, const std::string& prefix,
                                            const std::string& kind, const digest& schema,
                                            std::uint64_t computing) {
  node_config::averaging_parts parts;
  auto& m = parts.matchmaking;
  m.prefix = prefix;
  m.schema = schema;
  m.mode = o.client_mode ? member_mode::client
           : o.auxiliary ? member_mode::auxiliary
                         : member_mode::node;
  // Cannot fail: the option table accepts no other texts.
  if (auto codec = parse_codec_choice(o.codec))
    parts.averaging.codec = *codec;
  if (auto how = parse_aggregator(o.aggregator))
    m.reduce_by = {*how, static_cast<std::uint32_t>(o.faulty_max),
                   o.faulty_max > 0 ? o.check_sums : 0};
  if (o.bandwidth)
    m.bandwidth = static_cast<double>(*o.bandwidth);
  parts.averaging.measures_bandwidth = !o.bandwidth;
  m.min_vector_size = o.min_vector_size;
  m.elastic_bits = elastic_bits(o);
  if (!m.elastic_bits)
    m.initial_group_bits = o.group_bits;
  if (o.part_bytes)
    m.parts = {static_cast<std::uint32_t>(
                 std::min<std::uint64_t>(*o.part_bytes / sizeof(float), part_elements_max)),
               false};
  m.min_contributors = static_cast<std::uint32_t>(o.min_contributors);
  m.min_group_size = o.min_group_size;
  m.target_group_size = o.target_group_size;
  m.min_matchmaking_time = o.matchmaking_time;
  parts.averaging.kind = kind;
  parts.averaging.error_feedback = o.error_feedback;
  parts.averaging.auxiliary = o.auxiliary;
  parts.averaging.part_workers = part_workers(o, computing, std::thread::hardware_concurrency());
  parts.averaging.round.stall_timeout = o.stall_timeout;
  parts.averaging.round.deadline =
    o.allreduce_timeout > 0ms ? o.allreduce_timeout : o.averaging_timeout;
  parts.matchmaking.request_timeout = o.request_timeout;
  return parts;
}

node_config::helping_parts helping_from(const run_options& o) {
  node_config::helping_parts parts;
  parts.averaging = averaging_from(o, "gradients", "gradients", {});
  parts.averaging.matchmaking.mode = member_mode::auxiliary;
  parts.averaging.averaging.auxiliary = true;
  parts.averaging.averaging.elements_max = o.reduce_elements_max;
  parts.help.round_timeout = o.averaging_timeout;
  return parts;
}

std::shared_ptr<std::pmr::memory_resource>
vector_memory(const std::shared_ptr<net::shared_arena>& arena) {
  if (arena)
    return std::make_shared<net::arena_resource>(arena);
  return std::make_shared<huge_page_resource>();
}

} // namespace waggle
