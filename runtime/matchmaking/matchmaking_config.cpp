#include "runtime/matchmaking/matchmaking_config.hpp"

#include <algorithm>
#include <cmath>

#include "runtime/crypto/digest.hpp"
#include "runtime/matchmaking/bucket_load.hpp"
#include "runtime/matchmaking/group_key.hpp"

namespace waggle {

namespace {

failure bad(std::string why) {
  return {ec::bad_config, std::move(why)};
}

std::string text_of(const codec_plan& codecs) {
  std::string text;
  for (const auto& run : codecs)
    text += std::to_string(run.elements) + " " + std::string{to_string(run.codec)} + ",";
  return text;
}

} // namespace

status check_matchmaking_config(const matchmaking_config& config, bool client) {
  if (auto key = group_key::make(config.prefix, config.initial_group_bits); !key)
    return bad("prefix, initial_group_bits: " + key.error().detail);
  if (client && config.mode != member_mode::client)
    return bad("mode: a peer that accepts no connections can only be a client");
  if (config.extra && config.mode != member_mode::auxiliary)
    return bad("extra: only an auxiliary joins groups beside their members");
  if (config.bandwidth && !(std::isfinite(*config.bandwidth) && *config.bandwidth >= 0))
    return bad("bandwidth must be finite and not negative");
  if (to_string(config.reduce_by.how) == "unknown")
    return bad("reduce_by: this version does not know the aggregator");
  if (!(config.reduce_by.check_share >= 0 && config.reduce_by.check_share <= 1))
    return bad("reduce_by: check_share must be between 0 and 1");
  if (config.parts.largest == 0 || config.parts.largest > part_elements_max)
    return bad("parts.largest must be between 1 and " + std::to_string(part_elements_max));
  if (config.target_group_size < 2)
    return bad("target_group_size must be 2 or more: a group of 1 averages nothing");
  auto target = std::min(config.target_group_size, round_members_max);
  if (config.min_group_size < 1 || config.min_group_size > target)
    return bad("min_group_size must be between 1 and target_group_size, " + std::to_string(target));
  if (config.min_contributors < 1 || config.min_contributors > target)
    return bad("min_contributors must be between 1 and target_group_size, "
               + std::to_string(target));
  if (config.min_matchmaking_time <= 0ms)
    return bad("min_matchmaking_time must be positive: others need time to learn of the group");
  if (config.request_timeout <= 0ms)
    return bad("request_timeout must be positive");
  if (config.load_memory <= 0ms || config.load_memory > 9min)
    return bad("load_memory must be positive, and at most 9 minutes: the DHT keeps it for 10");
  if (config.elastic_bits && config.initial_group_bits.size() > bucket_load::bits_max)
    return bad("initial_group_bits: at most " + std::to_string(bucket_load::bits_max)
               + " with elastic_bits");
  if (config.alone_after < 0ms)
    return bad("alone_after must not be negative");
  return done{};
}

std::optional<std::string> matchmaking_warning(const matchmaking_config& config) {
  if (config.request_timeout >= config.min_matchmaking_time)
    return "--request-timeout should be shorter than --matchmaking-time: one peer that does not "
           "answer costs a whole search";
  return std::nullopt;
}

digest group_schema(const matchmaking_config& config, const codec_plan& codecs,
                    std::uint32_t version) {
  auto target = std::min(config.target_group_size, round_members_max);
  auto text = "waggle group/" + std::to_string(version) + "/" + text_of(codecs) + "/"
              + std::string{to_string(config.reduce_by.how)} + "/"
              + std::to_string(config.reduce_by.faulty_max) + "/"
              + std::to_string(config.reduce_by.check_share) + "/"
              + (config.parts.chosen ? "to " : "") + std::to_string(config.parts.largest) + "/"
              + std::to_string(config.min_contributors) + "/" + std::to_string(target) + "/"
              + std::to_string(config.min_vector_size) + "/" + config.prefix;
  return sha256_stream{}.add(text).add(config.schema.view()).finish();
}

} // namespace waggle
