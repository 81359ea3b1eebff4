#include "runtime/cli/strategy_comparison.hpp"

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include <nlohmann/json.hpp>
#include <spdlog/fmt/fmt.h>

#include "runtime/cli/text_table.hpp"
#include "runtime/config/options.hpp"
#include "runtime/core/check.hpp"
#include "runtime/training/strategies/daso_schedule.hpp"

namespace waggle {

namespace {

/// Options and their values; none: the strategy's defaults.
using variant = std::vector<std::pair<std::string, std::string>>;

/// The variants of a strategy: those that compute on, or wait, while they average or step, and
/// those that change what an average, or a peer's memory, takes.
std::vector<variant> variants_of(const strategy_row& row) {
  if (row.counts_steps && !row.steps_each_pass())
    return {{}, {{"delay-grad-averaging", "true"}}};
  if (!row.steps_each_pass())
    return {{},
            {{"delay-grad-averaging", "true"}},
            {{"delay-optimizer-step", "true"}},
            {{"delay-grad-averaging", "true"}, {"delay-optimizer-step", "true"}},
            {{"offload-optimizer", "true"}},
            {{"reuse-grad-buffers", "true"}},
            {{"low-rank", "4"}}};
  if (!row.counts_steps)
    return {{},
            {{"delay-state-averaging", "false"}},
            {{"average-gradients", "true"}},
            {{"groups", "moshpit"}}};
  return {{}};
}

/// The strategy of this row with the variant's options.
strategy_settings settings_of(const strategy_row& row, const variant& options) {
  run_options with;
  with.strategy = row.name;
  for (const auto& [option, value] : options)
    WAGGLE_CHECK(find_option(option)->set(with, value).ok(), option);
  return strategy_settings_of(with);
}

/// The sum of all series of a metric of which a label begins with `label`.
double sum_of(std::string_view metrics, std::string_view name, std::string_view label = "") {
  double sum = 0;
  while (!metrics.empty()) {
    auto end = std::min(metrics.find('\n'), metrics.size());
    auto line = metrics.substr(0, end);
    metrics.remove_prefix(std::min(end + 1, metrics.size()));
    auto labels = std::min(line.find_first_of("{ "), line.size());
    if (line.substr(0, labels) == name && line.find(label) != std::string_view::npos)
      sum += std::strtod(std::string{line.substr(line.rfind(' ') + 1)}.c_str(), nullptr);
  }
  return sum;
}

std::string text(double value, int digits) {
  return std::isfinite(value) ? fmt::format("{:.{}f}", value, digits) : "-";
}

} // namespace

result<std::vector<strategy_case>> strategy_cases(const run_options& options) {
  auto pass_of_each = options.micro_batch * options.peers;
  if (options.target_batch_size < pass_of_each)
    return failure{ec::bad_config,
                   "--target-batch-size " + std::to_string(options.target_batch_size)
                     + " is less than one pass of each of the " + std::to_string(options.peers)
                     + " peers: raise it to " + std::to_string(pass_of_each)
                     + ", or lower --micro-batch or --peers"};
  auto period = options.target_batch_size / pass_of_each;
  auto epochs = options.steps / period;
  if (epochs < 3)
    return failure{ec::bad_config, "--steps " + std::to_string(options.steps)
                                     + " are less than three epochs: raise it to "
                                     + std::to_string(3 * period)
                                     + ", or lower --target-batch-size"};
  std::vector<strategy_case> rows;
  for (const auto& row : strategy_table())
    for (const auto& variant : variants_of(row)) {
      auto made = row.make(settings_of(row, variant));
      strategy_case c;
      c.name = row.name;
      bool skips = row.on_boundary != nullptr;
      daso_rule daso{.epochs = epochs, .batches = period, .warmup = 1, .cooldown = 1};
      if (skips)
        c.name += ":epochs=" + std::to_string(epochs) + ",batches=" + std::to_string(period)
                  + ",warmup=1,cooldown=1";
      else if (!row.numbers.empty() && row.steps_each_pass())
        c.name += ":steps=" + std::to_string(period);
      c.arguments = {"--strategy", c.name};
      for (const auto& [option, value] : variant) {
        c.name += " --" + option + " " + value;
        c.arguments.insert(c.arguments.end(), {"--" + option, value});
      }
      if (row.counts_steps && row.averages_parameters)
        c.arguments.insert(c.arguments.end(), {"--averaging-steps-period", std::to_string(period)});
      else if (!row.counts_steps)
        c.arguments.insert(c.arguments.end(),
                           {"--target-batch-size", std::to_string(period * pass_of_each)});
      bool each_pass_ends_one = row.counts_steps && !row.steps_each_pass();
      c.epochs = each_pass_ends_one ? epochs * period : skips ? rounds_of(daso) : epochs;
      c.arguments.insert(c.arguments.end(), {"--epochs", std::to_string(c.epochs)});
      c.steps_each_pass = made.steps_locally() || each_pass_ends_one;
      c.merged = made.averages.overlap.ends;
      rows.push_back(std::move(c));
    }
  return rows;
}

peer_reading reading_of(std::string_view metrics, double at) {
  auto steps = [&](const char* suffix, const char* phase) {
    return sum_of(metrics, "waggle_training_step_duration_seconds" + std::string{suffix},
                  "phase=\"" + std::string{phase} + "\"");
  };
  peer_reading r;
  r.at = at;
  r.epoch = sum_of(metrics, "waggle_training_epoch");
  r.samples = sum_of(metrics, "waggle_training_samples_total", "outcome=\"used\"");
  r.passes = steps("_count", "forward_backward");
  r.computing_seconds = steps("_sum", "forward_backward") + steps("_sum", "optimizer");
  r.rounds = sum_of(metrics, "waggle_averaging_round_duration_seconds_count");
  r.round_seconds = sum_of(metrics, "waggle_averaging_round_duration_seconds_sum");
  r.bytes_sent = sum_of(metrics, "waggle_network_bytes_total", "direction=\"out\"");
  return r;
}

strategy_result result_of(const strategy_case& row, const std::vector<peer_run>& peers,
                          const loop_reading& loop, double pause) {
  WAGGLE_CHECK(!peers.empty(), "a swarm has peers");
  strategy_result out;
  out.name = row.name;
  out.loss = std::nan("");
  auto n = static_cast<double>(peers.size());
  double sent = 0;
  double samples = 0;
  double merged_after = 0;
  for (const auto& p : peers) {
    auto seconds = p.last.at - p.first.at;
    auto epochs = std::max(1.0, p.last.epoch - p.first.epoch);
    auto passes = p.last.passes - p.first.passes;
    auto computing = p.last.computing_seconds - p.first.computing_seconds;
    auto used = p.last.samples - p.first.samples;
    WAGGLE_CHECK(seconds > 0, "the last reading is later than the first");
    // A pause that was asked for is no stall.
    auto asked = pause * passes;
    out.samples_per_second += used / seconds / n;
    out.stall_seconds += std::max(0.0, seconds - computing - asked) / epochs / n;
    out.extra_bytes += (p.peak_bytes - loop.peak_bytes) / n;
    out.samples += p.samples;
    auto rounds = std::max(1.0, p.last.rounds - p.first.rounds);
    merged_after +=
      (p.last.round_seconds - p.first.round_seconds) / rounds / (seconds / epochs) / n;
    sent += p.last.bytes_sent - p.first.bytes_sent;
    samples += used;
  }
  out.share = loop.samples_per_second > 0 ? out.samples_per_second / loop.samples_per_second : 0;
  out.sent_per_thousand = samples > 0 ? sent / samples * 1000 : 0;
  out.staleness = row.merged == lane_overlap::until::own_steps       ? 0
                  : row.merged == lane_overlap::until::next_boundary ? 1
                                                                     : merged_after;
  return out;
}

std::vector<std::string> comparison_table(const std::vector<strategy_result>& rows) {
  text_table table{{{"strategy"},
                    {"samples/s", 0, true},
                    {"share", 0, true},
                    {"stall s/epoch", 0, true},
                    {"staleness", 0, true},
                    {"extra MB", 0, true},
                    {"MB sent/1000", 0, true},
                    {"samples", 0, true},
                    {"loss", 0, true}}};
  for (const auto& r : rows)
    table.add_row({r.name, text(r.samples_per_second, 0), text(r.share, 2),
                   text(r.stall_seconds, 4), text(r.staleness, 2), text(r.extra_bytes / 1e6, 0),
                   text(r.sent_per_thousand / 1e6, 2), text(r.samples, 0), text(r.loss, 4)});
  return table.lines();
}

nlohmann::ordered_json to_json(const strategy_result& r) {
  return {{"strategy", r.name},
          {"samples_per_second", r.samples_per_second},
          {"share", r.share},
          {"stall_seconds_per_epoch", r.stall_seconds},
          {"staleness_epochs", r.staleness},
          {"extra_bytes", r.extra_bytes},
          {"bytes_sent_per_thousand_samples", r.sent_per_thousand},
          {"samples", r.samples},
          {"loss", r.loss}};
}

} // namespace waggle
