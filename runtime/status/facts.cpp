#include "runtime/status/facts.hpp"

#include <algorithm>
#include <cmath>
#include <functional>
#include <iterator>

#include <nlohmann/json.hpp>

#include "runtime/core/version.hpp"

namespace waggle {

namespace {

using json = nlohmann::ordered_json; // writes NaN and infinite numbers as null
using at = const peer_view&;

json known(bool is, const auto& value) {
  return is ? json(value) : json(nullptr);
}

json share(const std::optional<double>& is) {
  return known(is.has_value(), std::round(1000 * is.value_or(0)) / 1000);
}

/// Of a strategy with a schedule of its own. Null without, and for what is not known.
template <auto Member>
json of_strategy(at p) {
  return p.t.strategy ? json(std::invoke(Member, *p.t.strategy)) : json(nullptr);
}

json passes(at p) {
  json all;
  for (const auto& each : p.t.passes)
    if (each.once + each.twice > 0)
      all.push_back(
        {{"pass", each.pass}, {"once", each.once}, {"twice", each.twice}, {"never", each.never}});
  return all;
}

json notices(at p) {
  json all = json::array();
  for (const auto& each : notices_of(p.picture))
    all.push_back({{"matter", each.matter}, {"seen", each.seen}, {"cure", each.cure}});
  return all;
}

json slow(at p) {
  json all;
  for (const auto& each : p.picture.slow.peers)
    all.push_back(
      {{"peer", short_name(each.peer)}, {"cause", to_string(each.cause)}, {"text", each.text}});
  if (!p.picture.slow.cannot_tell.empty())
    all.push_back({{"cannot_tell", p.picture.slow.cannot_tell}});
  return all;
}

json ranks(at p) {
  json all;
  for (const auto& each : p.own.ranks)
    all.push_back({{"rank", all.size()},
                   {"device", each.device},
                   {"seconds", each.seconds},
                   {"pass_seconds", each.pass_seconds}});
  return all;
}

json devices(at p) {
  std::string all;
  for (const auto& each : p.own.ranks)
    if (all.empty() || each.device != p.own.ranks.front().device)
      all += (all.empty() ? "" : ", ") + each.device;
  return known(!all.empty(), all);
}

/// The rank for which the others wait a fifth of the time.
json slowest_rank(at p) {
  constexpr double much = 0.2;
  const auto& all = p.own.ranks;
  if (all.size() < 2)
    return nullptr;
  std::vector<double> seconds;
  for (const auto& each : all)
    seconds.push_back(each.seconds);
  auto slowest = std::ranges::max_element(all, {}, &rank_pace::seconds);
  auto middle = seconds.begin() + static_cast<std::ptrdiff_t>((seconds.size() - 1) / 2);
  std::ranges::nth_element(seconds, middle);
  return known(slowest->seconds - *middle > much * slowest->pass_seconds, slowest - all.begin());
}

json punches(at p) {
  json all = json::array();
  if (p.picture.dht)
    for (const auto& each : p.picture.dht->punches)
      all.push_back({{"seen", each.seen}, {"cure", each.cure}});
  return all;
}

json actors(at p) {
  json all;
  for (const auto& [name, kind] : p.own.actors)
    all[name] = {{"running", kind.running}, {"started", kind.started}};
  return all;
}

constexpr fact table[]{
  {"peer", [](at p) { return json(to_string(p.own.self)); }},
  {"run", [](at p) { return json(p.own.run_id); }, "For this machine; others get the tag."},
  {"run_tag", [](at p) { return json(p.own.run_tag); }, "The label `run` of the metrics."},
  {"version", [](at) { return json(version); }},
  {"role", [](at p) { return json(p.picture.role); }, "trainer, client or node."},
  {"phase", [](at p) { return json(p.trains ? to_string(p.t.phase) : "node"); }},
  {"epoch", [](at p) { return known(p.trains, p.t.epoch.value()); }, "This peer's epoch.",
   "waggle_training_epoch"},
  {"global_epoch",
   [](at p) {
     bool somebody_trains = std::ranges::any_of(
       p.picture.run.peers, [](const auto& each) { return !each.claim.auxiliary; });
     return known(p.trains || somebody_trains,
                  (p.trains ? p.t.global_epoch : p.picture.run.global_epoch).value());
   },
   "The swarm's epoch.", "waggle_training_global_epoch"},
  {"schedule_epoch", [](at p) { return known(p.trains, p.t.schedule_epoch.value()); },
   "That the learning rate follows."},
  {"strategy.phase", of_strategy<&strategy_phase::name>,
   "Of --strategy daso: warm-up, cycling or cool-down."},
  {"strategy.epoch", of_strategy<&strategy_phase::epoch>,
   "Epochs of daso that have ended, each of many rounds.", "waggle_training_strategy_epoch"},
  {"strategy.epochs", of_strategy<&strategy_phase::epochs>, "After which the run ends; 0: never."},
  {"strategy.skips", of_strategy<&strategy_phase::skips>,
   "Batches from one round to the next; 0: each, and all wait.", "waggle_training_strategy_skips"},
  {"strategy.wait", of_strategy<&strategy_phase::wait>,
   "Batches until the mean of a round is merged.", "waggle_training_strategy_wait"},
  {"strategy.loss", of_strategy<&strategy_phase::loss>,
   "Mean loss of all peers in the last epoch of daso, which decides on the skips.",
   "waggle_training_strategy_loss"},
  {"strategy.best_loss", of_strategy<&strategy_phase::best_loss>},
  {"mean_age", [](at p) { return known(p.t.mean_age.has_value(), p.t.mean_age.value_or(0)); },
   "Passes of this peer from the copy that the last round averaged until the mean was merged.",
   "waggle_training_mean_age_passes"},
  {"samples_toward_epoch", [](at p) { return known(p.trains, p.t.samples_toward_epoch); }},
  {"target_batch_size",
   [](at p) { return known(p.t.target_batch_size > 0, p.t.target_batch_size); }},
  {"loss", [](at p) { return known(p.trains, p.t.loss); }, "Smoothed loss of this peer.",
   "waggle_training_loss"},
  {"first_loss", [](at p) { return known(p.trains, p.t.first_loss); },
   "Mean of the first passes of its first epoch.", "waggle_training_first_loss"},
  {"eval_loss", [](at p) { return known(p.trains, p.t.eval_loss); },
   "Loss of the shared weights on --eval-data.", "waggle_training_eval_loss"},
  {"eval_accuracy", [](at p) { return known(p.trains, p.t.eval_accuracy); },
   "Share of the predictions on --eval-data that are right.",
   "waggle_training_eval_accuracy_ratio"},
  {"eval_epoch", [](at p) { return known(std::isfinite(p.t.eval_loss), p.t.eval_epoch.value()); }},
  {"seconds_left", [](at p) { return known(p.trains, p.t.seconds_left); }, "Of the run."},
  {"samples.offered", [](at p) { return known(p.trains, p.t.samples_offered); }},
  {"samples.used", [](at p) { return known(p.trains, p.t.samples_used); },
   "They entered an update."},
  {"samples.dropped", [](at p) { return known(p.trains, p.t.samples_dropped); }},
  {"samples.pending", [](at p) { return known(p.trains, p.t.samples_pending()); },
   "Of this peer, in no update yet.", "waggle_training_pending_samples"},
  {"passes", passes, "Over the data, with --passes: how often its samples have entered an update."},
  {"rounds.complete", [](at p) { return json(p.picture.rounds_complete); }},
  {"rounds.shrunk", [](at p) { return json(p.picture.rounds_shrunk); }},
  {"rounds.failed", [](at p) { return json(p.picture.rounds_failed); }},
  {"plain_links",
   [](at p) {
     return json(std::ranges::count_if(p.picture.links,
                                       [](const auto& each) { return each.second.exposed; }));
   },
   "With other machines, and not encrypted.", "waggle_network_plain_connections"},
  {"local_fallbacks", [](at p) { return known(p.trains, p.t.local_fallbacks); },
   "Epochs that ended with this peer's own gradient."},
  {"state_downloads", [](at p) { return known(p.trains, p.t.state_downloads); }},
  {"steps", [](at p) { return known(p.trains, p.t.steps); }},
  {"samples_per_second", [](at p) { return known(p.trains, p.t.samples_per_second); },
   "Used samples by wall time: those of this peer that entered updates."},
  {"compute_samples_per_second",
   [](at p) {
     return known(p.trains && p.t.compute_samples_per_second > 0, p.t.compute_samples_per_second);
   },
   "Of its passes alone."},
  {"learning_rate",
   [](at p) {
     bool used = p.t.learning_rate != 0 || p.t.samples_used != 0;
     return known(p.trains && used, p.t.learning_rate);
   },
   "Learning rate of the current epoch.", "waggle_training_learning_rate"},
  {"learning_rate_reductions",
   [](at p) { return known(p.t.rate_reductions.has_value(), p.t.rate_reductions.value_or(0)); },
   "How often the schedule plateau has lowered the learning rate of the run. Only with --schedule "
   "plateau.",
   "waggle_training_learning_rate_reductions"},
  {"effective_batch", [](at p) { return known(p.t.effective_batch > 0, p.t.effective_batch); },
   "Samples of all contributors in the last update.", "waggle_training_effective_batch_samples"},
  {"history", [](at p) { return known(!p.t.past.branch.is_zero(), short_name(p.t.past.branch)); }},
  {"work", [](at p) { return known(p.trains, p.t.past.work); },
   "Samples times contributors since the run's start."},
  {"group_size",
   [](at p) {
     return p.trains ? json(p.t.group_size)
                     : known(p.picture.helper.has_value(),
                             p.picture.helper.value_or(helper_status{}).group_size);
   }},
  {"provisional", [](at p) { return known(p.trains, p.t.provisional); },
   "1 while this peer continues without most of its group.", "waggle_training_provisional"},
  {"waiting_for", [](at p) { return known(!p.t.waiting_for.empty(), p.t.waiting_for); }},
  {"notice", [](at) { return json(nullptr); }, "What symptoms.hpp finds."},
  {"notices", notices, "The same, each with its matter, its level, since when, and its cure."},
  {"punches", punches, "Direct links through routers that were tried, and what came of each."},
  {"slow", slow, "Who slows the rounds down, and why."},
  {"ranks.count", [](at p) { return known(!p.own.ranks.empty(), p.own.ranks.size()); },
   "Processes that are this peer together; null: one."},
  {"ranks.devices", devices},
  {"ranks.slowest", slowest_rank, "The others wait for it a fifth of the time; null: for none."},
  {"ranks.each", ranks,
   "Where each computes, and the seconds of a pass until it waits for the others."},
  {"histories", [](at p) { return known(p.trains, p.t.histories); },
   "Histories that live peers train; 1 unless the run has forked.", "waggle_training_histories"},
  {"differing_peers", [](at p) { return known(p.trains, p.t.differing_peers); },
   "Peers with our epoch and history but different parameters; 0 in a healthy run.",
   "waggle_training_differing_peers"},
  {"first_round_seconds",
   [](at p) { return known(p.t.first_round_seconds > 0, p.t.first_round_seconds); },
   "From this peer's start to the end of its first round.", "waggle_training_first_round_seconds"},
  {"last_outcome", [](at p) { return known(p.trains, p.t.last_outcome); }},
  {"parameters", [](at p) { return known(!p.t.parameters.is_zero(), to_string(p.t.parameters)); }},
  {"bytes.in", [](at p) { return json(p.own.bytes_in); }, "On the wire."},
  {"bytes.out", [](at p) { return json(p.own.bytes_out); }},
  {"bytes.shared", [](at p) { return json(p.own.bytes_shared); },
   "Through memory shared with peers on this host, both ways."},
  {"bandwidth", [](at p) { return known(p.own.bandwidth > 0, p.own.bandwidth); },
   "Measured bandwidth of this peer's connection, bytes a second.",
   "waggle_bandwidth_bytes_per_second"},
  {"peers", [](at p) { return json(p.picture.run.num_peers); }, "They train."},
  {"auxiliaries", [](at p) { return json(p.picture.run.num_auxiliaries); }, "They only reduce."},
  {"reduces_for_clients",
   [](at p) {
     return known(p.picture.helper.has_value(), p.picture.helper.value_or(helper_status{}).clients);
   },
   "Null: it never does."},
  {"machine.memory", [](at p) { return share(p.own.machine.memory); },
   "Share of the machine's memory, or of the container's limit, that is in use.",
   "waggle_machine_memory_used_ratio"},
  {"machine.disk", [](at p) { return share(p.own.machine.disk); },
   "Share of the disk of --data-dir that is in use.", "waggle_machine_disk_used_ratio"},
  {"machine.load", [](at p) { return share(p.own.machine.load); },
   "Tasks that run or wait, for each processor."},
  {"machine.gpu", [](at p) { return share(p.own.machine.gpu); }, "Share of the time."},
  {"machine.gpu_memory", [](at p) { return share(p.own.machine.gpu_memory); }, "In use."},
  {"clock_skew_seconds", [](at p) { return json(p.own.clock_skew); },
   "That the clocks of the others are ahead of this machine's.", "waggle_clock_skew_seconds"},
  {"actors", actors, "Of this peer by name: how many run, and how many were started."},
  {"uptime_seconds", [](at p) { return json(p.own.uptime); }},
};

} // namespace

std::span<const fact> facts() {
  return table;
}

fact_gauges::fact_gauges(metric_registry& where)
  : slow_(
    where, "waggle_peer_slow",
    "1 while a peer makes this one wait, or adds little, by cause; `slow` in the status names "
    "it."),
    phase_(where, "waggle_training_strategy_phase", "1 for the phase of --strategy daso.") {
  for (const auto& each : table)
    if (each.metric != nullptr)
      gauges_.emplace_back(where, each.metric, each.help);
}

void fact_gauges::show(const peer_view& now) {
  for (std::size_t i = 0; i < slow_causes; ++i)
    slow_(cause{i}, std::ranges::any_of(now.picture.slow.peers, [&](const slow_peer& each) {
            return static_cast<std::size_t>(each.cause) == i;
          }));
  if (now.t.strategy)
    for (std::size_t i = 0; i < std::size(strategy_phases); ++i)
      phase_(strategy_phases[i], now.t.strategy->name == strategy_phases[i] ? 1 : 0);
  auto gauge = gauges_.begin();
  for (const auto& each : table) {
    if (each.metric == nullptr)
      continue;
    auto& its = *gauge++;
    if (!now.trains && std::string_view{each.metric}.starts_with("waggle_training_"))
      continue;
    auto value = each.value(now);
    if (value.is_boolean())
      its(value.get<bool>() ? 1 : 0);
    else if (value.is_number() && std::isfinite(value.get<double>()))
      its(value.get<double>());
  }
}

} // namespace waggle
