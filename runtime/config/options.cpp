#include "runtime/config/options.hpp"

#include <algorithm>

#include "runtime/config/option_bindings.hpp"
#include "runtime/core/named.hpp"
#include "runtime/training/model_table.hpp"
#include "runtime/training/optimizer_table.hpp"
#include "runtime/training/schedule_text.hpp"
#include "runtime/training/strategy.hpp"

namespace waggle {

const std::vector<option_spec>& option_table() {
  static const auto table = [] {
    std::vector<option_spec> all;
    option_bindings::add_peer_options(all);
    option_bindings::add_training_options(all);
    option_bindings::add_data_options(all);
    option_bindings::add_averaging_options(all);
    option_bindings::add_command_options(all);
    return all;
  }();
  return table;
}

namespace {

std::string written(const option_spec& spec, option_writer who) {
  if (who == option_writer::cpp_loop)
    return !spec.loops.member.empty()   ? "swarm_options::" + spec.loops.member
           : spec.loops.instead.empty() ? "swarm_options::more: " + spec.name
                                        : spec.name;
  auto name = spec.name == "run-id" ? "run" : spec.name; // of the arguments in Python
  std::ranges::replace(name, '-', '_');
  return name;
}

} // namespace

const option_spec* find_option(std::string_view name) {
  return find_named(option_table(), name);
}

std::string as_written(std::string_view sentence, option_writer who) {
  std::string out;
  bool in_command = false;
  while (!sentence.empty()) {
    in_command = in_command != sentence.starts_with('`');
    auto end = sentence.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789-", 2);
    auto option = sentence.substr(0, sentence.starts_with("--") ? end : 1);
    const auto* spec = in_command || option.size() < 3 ? nullptr : find_option(option.substr(2));
    if (spec != nullptr && who != option_writer::command_line)
      out += written(*spec, who);
    else
      out += option;
    sentence.remove_prefix(option.size());
  }
  return out;
}

result<run_options> resolve(const settings& file, const settings& environment,
                            const settings& flags) {
  run_options options;
  for (const auto& spec : option_table()) {
    for (const auto* source : {&flags, &environment, &file}) {
      auto found = source->find(spec.name);
      if (found == source->end())
        continue;
      auto set = spec.set(options, found->second.value);
      if (!set)
        return failure{ec::bad_config, found->second.source + ": '" + found->second.value + "' "
                                         + set.error().detail};
      options.given[spec.name] = found->second.value;
      break;
    }
  }
  auto folder = absolute_path(options.data_dir); // if it is the default
  if (!folder)
    return failure{ec::bad_config,
                   "--data-dir: " + options.data_dir.string() + " " + folder.error().detail};
  options.data_dir = std::move(*folder);
  const auto& strategy = *options.strategy;
  if (!strategy.optimizer.empty() && !options.given.contains("optimizer"))
    options.optimizer = strategy.optimizer;
  if (strategy.codec && !options.given.contains("codec"))
    options.averaging.codec = *strategy.codec;
  // What is not sent at first is sent later; the decay is that of SparseLoCo (arXiv 2508.15706).
  if (uses(options.averaging.codec, sends_contributions_back) && !options.auxiliary
      && strategy.make({}).averages.what == lane_content::progress
      && !options.given.contains("error-feedback"))
    options.averaging.error_feedback = 0.95;
  if (strategy.rate > 0 && !options.given.contains("lr"))
    options.lr = strategy.rate;
  if (!options.devices.empty() && !options.given.contains("replicas"))
    options.replicas = static_cast<std::int64_t>(options.devices.size());
  // One file serves all peers of a run: an auxiliary does not use what it says of passes and of
  // what they send.
  auto named_here = [&](const char* name) {
    return flags.contains(name) || environment.contains(name);
  };
  bool reduces = options.auxiliary && named_here("auxiliary");
  if (reduces && !named_here("micro-batch"))
    options.given.erase("micro-batch");
  if (reduces && !named_here("replicas"))
    options.replicas = 1;
  if (reduces && !named_here("error-feedback"))
    options.averaging.error_feedback = 0;
  // The micro-batch is not part of the run's agreement: a peer that joins with only the run's
  // options must not fail on its default, and neither must one that waits for --min-peers.
  if (!options.given.contains("micro-batch") && !strategy.counts_steps())
    options.micro_batch = std::clamp<std::int64_t>(
      static_cast<std::int64_t>(options.target_batch_size / options.min_peers) / options.replicas,
      1, options.micro_batch);
  // A search may take twice the matchmaking time (moshpit_averager), and the round needs time, too.
  auto& search = options.matchmaking;
  if (!options.given.contains("matchmaking-time"))
    search.min_matchmaking_time =
      std::min(search.min_matchmaking_time, options.averaging_timeout / 3);
  // One silent peer must not use up the search (matchmaking_config.cpp).
  if (!options.given.contains("request-timeout")
      && search.request_timeout >= search.min_matchmaking_time)
    search.request_timeout = search.min_matchmaking_time / 2;
  if (auto fits = check_combinations(options); !fits)
    return fits.error();
  return options;
}

optimizer_identity optimizer_of(const run_options& o) {
  auto identity = identity_with(o.optimizer, o.hyper);
  identity.weight_decay = o.weight_decay;
  identity.decay_vectors = o.no_decay == "none";
  return identity;
}

std::uint64_t schedule_length(const run_options& o) {
  if (o.how.steps_in_epoch > 0)
    return 0;
  auto phase = o.strategy.phase().value_or(strategy_phase{});
  switch (o.strategy.unit(o.how.unit)) {
    case schedule_unit::epochs:
      return phase.epochs;
    case schedule_unit::batches:
      return o.strategy->phase != nullptr ? phase.epochs * phase.batches
                                          : o.epochs * o.strategy.make(o.how).averages.due.every;
    default:
      return o.epochs;
  }
}

result<lr_schedule> schedule_of(const run_options& o) {
  if (o.how.steps_in_epoch == 0)
    return make_schedule(o.schedule, o.lr, o.warmup_epochs, schedule_length(o));
  if (const auto& last = o.schedule.back(); last.row->ends && !last.epochs)
    return failure{ec::bad_config,
                   "--schedule " + std::string{last.row->name}
                     + " needs its length with --total-steps-in-epoch, whose epochs are not those "
                       "of --epochs, which counts averages: write "
                     + std::string{last.row->name} + ":epochs=N"};
  return make_schedule(o.schedule, o.lr, o.warmup_epochs, 0);
}

bool elastic_bits(const run_options& o) {
  return o.group_bits == "auto" || (o.group_bits.empty() && o.many_groups);
}

std::uint64_t part_workers(const std::optional<std::uint64_t>& reduce_threads,
                           std::uint64_t computing, std::uint64_t cores) {
  constexpr std::uint64_t network_and_actors = 2;
  constexpr std::uint64_t useful_max = 8; // then memory, not arithmetic, limits the sums
  if (reduce_threads)
    return *reduce_threads;
  auto busy = network_and_actors + computing;
  return cores > busy ? std::min(cores - busy, useful_max) : 0;
}

std::optional<std::string> too_many_threads(const run_options& options, std::uint64_t peers,
                                            std::uint64_t cores) {
  auto replicas = static_cast<std::uint64_t>(options.replicas);
  auto threads = static_cast<std::uint64_t>(options.threads);
  if (cores == 0 || peers * options.compute_threads() <= cores)
    return std::nullopt;
  auto count = [](std::uint64_t n, const char* what) {
    return std::to_string(n) + " " + what + (n == 1 ? "" : "s");
  };
  auto who = (peers > 1 ? count(peers, "peer") + " with " : "")
             + (replicas > 1 ? count(replicas, "replica") + " with " : "")
             + count(threads, "compute thread") + (peers * replicas > 1 ? " each" : "");
  auto room = cores / peers / replicas;
  auto cure = room > 0 ? "--threads " + std::to_string(room)
              : replicas > 1
                ? "--replicas " + std::to_string(std::max<std::uint64_t>(cores / peers, 1))
                    + " and --threads 1"
                : (threads > 1 ? "--threads 1 and " : "") + ("--peers " + std::to_string(cores));
  return who + " on " + count(cores, "core")
         + ": threads that share a core slow each other down; use " + cure;
}

} // namespace waggle
