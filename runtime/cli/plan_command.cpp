#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iostream>

#include <nlohmann/json.hpp>
#include <spdlog/fmt/fmt.h>

#include "runtime/cli/commands.hpp"
#include "runtime/cli/examine_swarm.hpp"
#include "runtime/cli/readable.hpp"
#include "runtime/cli/strategy_costs.hpp"
#include "runtime/cli/text_table.hpp"
#include "runtime/training/safetensors.hpp"
#include "runtime/watch/events.hpp"
#include "runtime/watch/json_fields.hpp"

namespace waggle {

namespace {

constexpr std::size_t peers_max = 64;

bool is_measured(const run_options& options) {
  return options.step_time == 0ms;
}

/// Three digits.
std::string decimals(double x) {
  return x < 999.5 ? fmt::format("{:.3g}", x) : fmt::format("{:.0f}", x);
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
                   fmt::format("{:.3f}", row.share), decimals(row.memory / 1e9),
                   row.loss_gap ? fmt::format("{:+.1f} %", 100 * *row.loss_gap) : "not measured"});
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

/// Of a file of values alone, which needs no LibTorch.
result<model_facts> values_of(const run_options& options) {
  auto no = [&](const std::string& why) {
    return failure{ec::bad_config, "--model " + options.model + " " + why};
  };
  if (is_measured(options))
    return no("has values, but no passes for --step-time measure: use a built-in model or FILE.pt, "
              "or write a time");
  std::ifstream file{options.model, std::ios::binary};
  std::error_code unreadable;
  auto bytes = std::filesystem::file_size(options.model, unreadable);
  if (!file || unreadable)
    return no("cannot be read");
  auto counted = count_values(file, bytes);
  if (!counted)
    return no(counted.error().detail);
  if (counted->floats == 0)
    return no("has no values that can be trained");
  return model_facts{.trained = counted->floats, .frozen = counted->others};
}

/// Takes from --model what the user did not say.
int look_at_model(planned_run& run, const run_options& options, const training_check& check) {
  if (!options.given.contains("model"))
    return bad_usage("waggle plan needs --values N, the parameters that are trained, such as 1e9 "
                     "(of adapters, those of the adapters alone), or --model to count them; "
                     "--step-time measure needs --model");
  auto look = is_measured(options) ? model_look::measure : model_look::count;
  auto facts = is_safetensors(options.model) ? values_of(options) : check.facts(options, look);
  if (!facts)
    return bad_usage(facts.error().detail);
  std::cout << options.model << ": ";
  if (run.values == 0) {
    run.values = facts->trained;
    run.frozen = options.given.contains("frozen") ? run.frozen : facts->frozen;
    std::cout << readable_count(facts->trained) << " parameters are trained, "
              << readable_count(facts->frozen) << " are not" << (is_measured(options) ? "; " : "");
  }
  if (is_measured(options)) {
    run.step_seconds = facts->step_seconds;
    std::cout << "passes of " << options.micro_batch << " samples take "
              << decimals(1000 * run.step_seconds) << " ms";
  }
  std::cout << "\n\n";
  return exit_clean;
}

/// Takes from a running swarm what the user did not say.
int ask(planned_run& run, const run_options& options) {
  auto where = asked_peer(options);
  if (!where)
    return report_no_peer(where.error());
  int code = exit_clean;
  auto said = documents_of(*where, options, code);
  if (!said)
    return code;
  auto now = watch::unix_ms(system_wall_clock{}.now());
  auto members = members_in(said->peers, *where, peers_max, now);
  std::erase_if(members, [&](const asked_member& each) { // who left, and the one that was asked
    return each.left.has_value() || each.id == text_in(said->status, "peer");
  });
  ask_members(members, 0, options.key, asks_encrypted(options));
  std::vector<nlohmann::ordered_json> statuses{said->status};
  for (const auto& member : members)
    statuses.push_back(parse_document(member.status).value_or(nullptr));
  auto seen = seen_in(statuses, said->peers, run);
  auto is_given = [&](const char* name) { return options.given.contains(name); };
  run.peers = is_given("peers") ? run.peers : seen.peers;
  if (!is_given("step-time"))
    run.step_seconds = seen.step_seconds;
  else if (is_measured(options)) // here, and there by others
    run.step_seconds = std::max(run.step_seconds, seen.step_seconds);
  auto measured = std::ranges::count_if(statuses, [](const nlohmann::ordered_json& status) {
    return number_in(status, "bandwidth").value_or(0) > 0;
  });
  std::string of_peers; // said of the bandwidth
  if (!is_given("link"))
    of_peers = measured == 0 ? " (no peer has measured its link: give --link)"
                             : " (the least of the bandwidths of " + std::to_string(measured)
                                 + " of " + std::to_string(statuses.size()) + " peers)";
  run.link = is_given("link") ? run.link : seen.link;
  std::cout << to_string(*where) << ": " << run.peers << " peers, passes of "
            << decimals(1000 * run.step_seconds) << " ms, "
            << decimals(run.link.bits_per_second / 1e6) << " Mbit/s" << of_peers << " and "
            << decimals(1000 * run.link.delay_seconds) << " ms to another peer\n\n";
  return exit_clean;
}

int run_plan(const run_options& options, const training_check& check) {
  if (options.arguments.front().empty() && !asked_fingerprint(options).empty())
    return bad_usage("--fingerprint is that of a running peer: name it, waggle plan HOST:PORT");
  planned_run run{options.peers,
                  options.link,
                  options.trained_values.value_or(0),
                  options.frozen_values,
                  std::chrono::duration<double>(options.step_time).count(),
                  options.memory};
  auto code = exit_clean;
  if (run.values == 0 || is_measured(options))
    code = look_at_model(run, options, check);
  if (code == exit_clean && !options.arguments.front().empty())
    code = ask(run, options);
  if (code != exit_clean)
    return code;
  auto rows = strategy_costs(run);
  print_table(rows);
  std::cout << "\nLoss: beside data-parallel after 64,000 samples of a char-gpt of 30,176 values "
               "(tests/bench/RESULTS.md, \"Loss over samples\"); sparse2, which moves 1.6 % of the "
               "values in a round, wants hundreds of rounds. Memory: with Adam, in float32.\n";
  const auto* best = best_of(rows, run);
  if (best == nullptr)
    return report_too_large(rows, options);
  if (best->share < share_wanted)
    std::cout << "\nNo row computes for " << fmt::format("{:.0f}", 100 * share_wanted)
              << " % of the time. The best needs a faster --link, fewer --values, or passes that "
                 "take longer (--micro-batch).\n";
  std::cout << "\nwaggle train --min-peers " << run.peers << " " << best->options() << "\n";
  return exit_clean;
}

} // namespace

command plan_command(training_check check) {
  return {.name = "plan",
          .summary = "Computes what each strategy and codec costs on a link, before a run.",
          .details =
            "  waggle plan --peers 8 --link 50mbit,20ms --values 1e9 --step-time 400ms\n"
            "  waggle plan --values 20e6 --frozen 7e9      adapters: only they are sent\n"
            "  waggle plan --model net.pt --step-time measure\n"
            "  waggle plan --model model.safetensors       counts its values\n"
            "  waggle plan 127.0.0.1:7700 --values 1e9     for the run that this peer is in\n"
            "Its last line is the command of the row that follows most closely what one process "
            "would learn, of those that fit and compute for at least 90 % of the time.\n",
          .groups = {"plan"},
          .arguments = {{"HOST:PORT",
                         "A peer of a running swarm: how many train, the slowest pass and the "
                         "slowest link, where no option says otherwise.",
                         false}},
          .run = [check = std::move(check)](const run_options& o) { return run_plan(o, check); },
          .single_options = {"peers", "swarm-key", "fingerprint", "model", "loss", "layers",
                             "width", "heads", "context", "data", "token-type", "classes",
                             "micro-batch", "device", "threads", "precision"}};
}

} // namespace waggle
