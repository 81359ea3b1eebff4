#include <algorithm>
#include <array>
#include <cstdio>
#include <iostream>

#include "runtime/cli/commands.hpp"
#include "runtime/cli/strategy_costs.hpp"
#include "runtime/cli/text_table.hpp"

namespace waggle {

namespace {

std::string shown(const char* format, double x) {
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), format, x);
  return text.data();
}

std::string decimals(double x) {
  return shown(x < 0.1 ? "%.3f" : x < 10 ? "%.2f" : x < 1000 ? "%.1f" : "%.0f", x);
}

void print_table(const std::vector<strategy_cost>& rows) {
  text_table table{{{"strategy and codec"},
                    {"MB sent", 0, true},
                    {"seconds a round", 0, true},
                    {"share computing", 0, true},
                    {"memory, GB", 0, true},
                    {"loss", 0, true}}};
  for (const auto& row : rows)
    table.add_row({row.options(), decimals(row.bytes / 1e6), decimals(row.round_seconds),
                   shown("%.3f", row.share), decimals(row.memory / 1e9),
                   row.loss_gap ? shown("%+.1f %%", 100 * *row.loss_gap) : "not measured"});
  for (const auto& line : table.lines())
    std::cout << line << "\n";
}

/// What to change where even the smallest row needs more than there is.
int report_too_large(const std::vector<strategy_cost>& rows, const run_options& options) {
  auto least = std::ranges::min(rows, {}, &strategy_cost::memory).memory;
  std::cout << "\nNo row fits: the smallest needs " << decimals(least / 1e9)
            << " GB, and --memory is " << decimals(static_cast<double>(options.memory) / 1e9)
            << " GB. Raise it, or train fewer --values: adapters before a frozen model, say.\n";
  return exit_failed;
}

/// Takes from a running peer what the user did not say.
int ask(planned_run& run, const run_options& options) {
  auto where = asked_peer(options);
  if (!where)
    return report_no_peer(where.error());
  int code = exit_clean;
  auto said = documents_of(*where, options, code);
  if (!said)
    return code;
  auto seen = seen_in(said->status, said->peers, run);
  auto is_given = [&](const char* name) { return options.given.contains(name); };
  run.peers = is_given("peers") ? run.peers : seen.peers;
  run.step_seconds = is_given("step-time") ? run.step_seconds : seen.step_seconds;
  run.link = is_given("link") ? run.link : seen.link;
  std::cout << to_string(*where) << ": " << run.peers << " peers, passes of "
            << decimals(1000 * run.step_seconds) << " ms, "
            << decimals(run.link.bits_per_second / 1e6) << " Mbit/s and "
            << decimals(1000 * run.link.delay_seconds) << " ms to another peer\n\n";
  return exit_clean;
}

int run_plan(const run_options& options) {
  if (!options.trained_values)
    return bad_usage("waggle plan needs --values N, the parameters that are trained, such as 1e9; "
                     "of adapters, those of the adapters alone");
  planned_run run{options.peers,
                  options.link,
                  *options.trained_values,
                  options.frozen_values,
                  std::chrono::duration<double>(options.step_time).count(),
                  options.memory};
  if (!options.arguments.front().empty()) {
    auto code = ask(run, options);
    if (code != exit_clean)
      return code;
  }
  auto rows = strategy_costs(run);
  print_table(rows);
  std::cout << "\nLoss: beside data-parallel after 64,000 samples of a char-gpt of 0.8 M values "
               "(tests/bench/RESULTS.md, \"Loss over samples\"). Memory: with Adam, in float32.\n";
  const auto* best = best_of(rows, run);
  if (best == nullptr)
    return report_too_large(rows, options);
  if (best->share < share_wanted)
    std::cout << "\nNo row computes for " << shown("%.0f", 100 * share_wanted)
              << " % of the time. The best needs a faster --link, fewer --values, or passes that "
                 "take longer (--micro-batch).\n";
  std::cout << "\nwaggle train --min-peers " << run.peers << " " << best->options() << "\n";
  return exit_clean;
}

} // namespace

command plan_command() {
  return {.name = "plan",
          .summary = "Computes what each strategy and codec costs on a link, before a run.",
          .details =
            "  waggle plan --peers 8 --link 50mbit,20ms --values 1e9 --step-time 400ms\n"
            "  waggle plan --values 20e6 --frozen 7e9      adapters: only they are sent\n"
            "  waggle plan 127.0.0.1:7700 --values 1e9     for the run that this peer is in\n"
            "Its last line is the command of the row that follows most closely what one process "
            "would learn, of those that fit and compute for at least 90 % of the time.\n",
          .groups = {"plan"},
          .arguments = {{"HOST:PORT",
                         "A peer of a running swarm: its peers, passes and link, where no option "
                         "says otherwise.",
                         false}},
          .run = run_plan,
          .single_options = {"peers", "swarm-key"}};
}

} // namespace waggle
