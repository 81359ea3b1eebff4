#include "actors/program/node_options.hpp"

#include <thread>

#include "runtime/cli/readable.hpp"
#include "runtime/config/options.hpp"
#include "runtime/core/version.hpp"

namespace waggle {

namespace {

/// What others may compare with theirs: the version, and options of the training that were given
/// and need not be equal, without paths.
std::string settings_of(const run_options& o) {
  auto all = std::string{"version="} + version + "\n";
  for (const auto& row : option_table()) {
    auto given = o.given.find(row.name);
    bool compared = (row.group == "training" || row.group == "averaging") && !row.agreed;
    if (!compared || given == o.given.end() || given->second.find('/') != std::string::npos)
      continue;
    auto line = row.name + "=" + printable(given->second, 40) + "\n";
    if (all.size() + line.size() <= settings_bytes_max)
      all += line;
  }
  return all;
}

} // namespace

node_config node_config_from(const run_options& o, const std::filesystem::path& data_dir) {
  node_config config{.run_id = o.run(),
                     .label = o.run_id,
                     .listen = o.listen,
                     .announce = o.announce,
                     .initial_peers = o.initial_peers};
  std::vector<endpoint> own = o.initial_peers;
  own.insert(own.end(), o.listen.begin(), o.listen.end());
  own.insert(own.end(), o.announce.begin(), o.announce.end());
  config.switchboard.announced_addresses = net::dial_policy{own};
  config.addresses.file = data_dir / "known_peers";
  config.event_log = {data_dir / "events", o.event_log};
  config.addresses.save_interval = 1s; // so that a peer that is killed soon has stored some peers
  config.client_mode = o.client_mode;
  config.trust_members = o.trust_members;
  config.pages = parse_page_audience(o.pages);
  if (o.client_mode) // HTTP for this machine only
    config.listen = {
      {"127.0.0.1", o.given.contains("listen") ? o.listen.front().port : std::uint16_t{0}}};
  // A frozen peer delays the round of all members until it is given up, after about 2.7 pings.
  config.switchboard.link.ping_interval = 400ms;
  config.seed = o.seed != 0 ? o.seed : entropy_seed();
  config.progress.ledger = o.ledger;
  config.progress.ledger.target_batch_size = o.samples_per_round();
  config.progress.report_ttl = o.report_expiration;
  config.progress.settings = settings_of(o);
  config.progress.share_priority =
    o.share_state ? std::optional{static_cast<float>(o.share_priority)} : std::nullopt;
  config.progress.performance_ema_alpha = o.performance_ema_alpha;
  config.stop_training_timeout = o.shutdown_timeout;
  return config;
}

milliseconds shutdown_limit(const node_config& config) {
  constexpr auto margin = 1400ms; // for a busy machine
  return config.stop_training_timeout + 2 * config.goodbye_time + margin;
}

node_config::averaging_parts averaging_from(const run_options& o, const std::string& prefix,
                                            const std::string& kind, const digest& schema,
                                            std::uint64_t computing) {
  node_config::averaging_parts parts{o.matchmaking, o.averaging};
  auto& m = parts.matchmaking;
  m.prefix = prefix;
  m.schema = schema;
  m.mode = o.client_mode ? member_mode::client
           : o.auxiliary ? member_mode::auxiliary
                         : member_mode::node;
  if (m.reduce_by.faulty_max > 0)
    m.reduce_by.check_share = o.check_sums;
  if (o.bandwidth)
    m.bandwidth = static_cast<double>(*o.bandwidth);
  m.elastic_bits = elastic_bits(o);
  if (!m.elastic_bits)
    m.initial_group_bits = o.group_bits;
  if (o.part_bytes)
    m.parts = {static_cast<std::uint32_t>(
                 std::min<std::uint64_t>(*o.part_bytes / sizeof(float), part_elements_max)),
               false};
  auto& a = parts.averaging;
  a.kind = kind;
  a.auxiliary = o.auxiliary;
  a.measures_bandwidth = !o.bandwidth;
  a.part_workers = part_workers(o.reduce_threads, computing, std::thread::hardware_concurrency());
  a.round.deadline = o.allreduce_timeout > 0ms ? o.allreduce_timeout : o.averaging_timeout;
  return parts;
}

node_config::helping_parts helping_from(const run_options& o) {
  node_config::helping_parts parts;
  parts.averaging = averaging_from(o, "gradients", "vector", {}); // of any strategy
  parts.averaging.matchmaking.mode = member_mode::auxiliary;
  parts.averaging.averaging.auxiliary = true;
  parts.averaging.averaging.elements_max = o.reduce_elements_max;
  parts.help.round_timeout = o.averaging_timeout;
  parts.donor.shares = o.share_state;
  return parts;
}

} // namespace waggle
