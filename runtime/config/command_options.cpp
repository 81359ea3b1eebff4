// The options of single commands.

#include <algorithm>
#include <cctype>
#include <chrono>
#include <cmath>
#include <utility>

#include "runtime/averaging/round_plan.hpp"
#include "runtime/config/option_bindings.hpp"
#include "runtime/core/named.hpp"
#include "runtime/core/try.hpp"
#include "runtime/crypto/member_list.hpp"
#include "runtime/training/training_curves.hpp"

namespace waggle::option_bindings {

namespace {

using o = run_options;

result<std::string> gathered_text(std::string_view v) {
  if (v.size() > gather_bytes_max)
    return failure{ec::bad_config, "is longer than " + std::to_string(gather_bytes_max) + " bytes"};
  return std::string{v};
}

constexpr const char* link_form =
  "is no link: write its rate and its delay in each direction, such as 50mbit,20ms (kbit, mbit or "
  "gbit; 10kbit to 1000gbit, at most 10s)";

result<link_speed> parse_link(std::string_view v) {
  auto comma = v.find(',');
  auto rate = v.substr(0, comma);
  auto unit = rate.find_first_not_of("0123456789.");
  auto number = parse_real(rate.substr(0, unit));
  auto delay = comma == std::string_view::npos ? result<milliseconds>{20ms}
                                               : parse_duration(v.substr(comma + 1));
  constexpr std::pair<std::string_view, double> units[]{
    {"kbit", 1e3}, {"mbit", 1e6}, {"gbit", 1e9}};
  const auto* of =
    unit == std::string_view::npos
      ? std::end(units)
      : std::ranges::find(units, rate.substr(unit), &std::pair<std::string_view, double>::first);
  if (!number || !delay || of == std::end(units) || *delay > 10s)
    return failure{ec::bad_config, link_form};
  link_speed link{*number * of->second, std::chrono::duration<double>(*delay).count()};
  if (!(link.bits_per_second >= 1e4 && link.bits_per_second <= 1e12))
    return failure{ec::bad_config, link_form};
  return link;
}

std::string text_of_link(const link_speed& link) {
  auto delay = milliseconds{static_cast<std::int64_t>(std::llround(link.delay_seconds * 1000))};
  return text_of(link.bits_per_second / 1e6) + "mbit," + text_of(delay);
}

constexpr const char* fingerprint_of_option = "fingerprint";

/// With colons, as `waggle id` prints it, or without. Only a question to a peer has one, so it has
/// no field.
binding fingerprint() {
  auto shown = [](std::string_view v) {
    std::string out;
    for (char c : v) {
      if (c == ':')
        continue;
      if (out.size() % 3 == 2)
        out += ':';
      out += static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
    }
    return out;
  };
  return {[=](run_options& o, std::string_view v) -> status {
            auto pairs = shown(v);
            if (pairs.size() != 3 * digest::size - 1
                || pairs.find_first_not_of("0123456789ABCDEF:") != std::string::npos)
              return failure{ec::bad_config, "is no SHA-256 fingerprint: copy it from `waggle id` "
                                             "on the peer's machine, or from the peer's log"};
            o.given[fingerprint_of_option] = v;
            return done{};
          },
          [=](const run_options& o) {
            auto given = o.given.find(fingerprint_of_option);
            return given == o.given.end() ? std::string{} : shown(given->second);
          }};
}

/// 0: it is measured.
binding step_time() {
  auto parse = [](std::string_view v) -> result<milliseconds> {
    auto value = v == "measure" ? result<milliseconds>{0ms} : parse_duration(v);
    if (value && *value < 1ms && v != "measure")
      return failure{ec::bad_config, "must be at least 1ms, or measure: a pass takes time"};
    return value;
  };
  return bound(&o::step_time, parse, [](milliseconds time) {
    return time == 0ms ? std::string{"measure"} : text_of(time);
  });
}

/// "1e9" is a whole number, too.
auto parse_count(std::uint64_t low) {
  return [low](std::string_view v) -> result<std::uint64_t> {
    auto number = parse_real(v);
    if (!number || *number < static_cast<double>(low) || *number > 1e13)
      return failure{ec::bad_config,
                     "must be a number between " + std::to_string(low) + " and 1e13, such as 1e9"};
    return static_cast<std::uint64_t>(std::llround(*number));
  };
}

status set_json(run_options& x, std::string_view v) {
  x.json = true;
  if (v.empty() || v == "true")
    return done{};
  WAGGLE_TRY(file, absolute_path(v));
  x.json_file = std::move(*file);
  return done{};
}

} // namespace

void add_command_options(std::vector<option_spec>& table) {
  add_group(
    table, "average",
    {{"elements", "N", "float32 values in the vector of waggle average.",
      whole(&o::elements, 1, plan_elements_max, "a round's vector has at most 2^33 values")
        .agreed()},
     {"rounds", "N", "Stop after this many rounds; 0: run until stopped.", whole(&o::rounds)},
     {"weight", "X", "Weight of this peer's vector in the mean.",
      real(&o::weight, {0, 1e30, "contributions are not subtracted from a mean",
                        "sums of a round's weights would overflow"})},
     {"deltas", "BOOL",
      "Keep the codec's rounding error out of the own vector: equal vectors stay unchanged.",
      yes_no(&o::deltas)},
     {"gather", "TEXT", "A text that is sent to all members of the group.",
      bound(&o::gather, gathered_text)},
     {"expected-peers", "N", "Begin as soon as the group has this many members; 0: not known.",
      whole(&o::expected_peers, 0, 64, "a round has at most 64 members")},
     {"reuse-group", "BOOL", "Go on with the group of the last round.", yes_no(&o::reuse_group)}});
  add_group(table, "swarm",
            {{"peers", "N", "Peers that waggle swarm starts, or with which waggle plan counts.",
              whole(&o::peers, 1, 64, "a round has at most 64 members")},
             {"kill-after", "TIME", "Kill one peer (SIGKILL) after this long; 0: never.",
              duration(&o::kill_after)
                .only_if([](const o& x) { return x.peers >= 2; },
                         "needs --peers 2 or more: no peer would be left; raise --peers, or leave "
                         "it out")},
             {"join-after", "TIME", "Start another peer after this long; 0: never.",
              duration(&o::join_after)}});
  add_group(
    table, "plan",
    {{"link", "RATE,DELAY",
      "What the link of a peer carries, and how long a byte takes to another one, in each "
      "direction.",
      bound(&o::link, parse_link, text_of_link)},
     {"values", "N",
      "Parameters that are trained, such as 1e9; of adapters, those of the adapters alone. Without "
      "it, those of --model.",
      bound(&o::trained_values, parse_count(1))},
     {"frozen", "N", "Parameters that are not trained, which nobody sends.",
      bound(&o::frozen_values, parse_count(0))},
     {"step-time", "TIME",
      "Time of a pass on one peer; measure: of --model with --micro-batch on this machine.",
      step_time()},
     {"memory", "BYTES", "Memory of a peer; 0: any row fits.", bound(&o::memory, parse_bytes)}});
  add_group(
    table, "status",
    {{"curve", "NAME",
      "Show the course of one value from the run's first epoch on: " + listed(curve_table()) + ".",
      one_of(&o::curve, names_in(curve_table()))},
     {fingerprint_of_option, "SHA256",
      "Ask over TLS, and only a peer whose pages have the certificate with this fingerprint "
      "(`waggle id` prints it).",
      fingerprint()}});
  add_group(table, "members",
            {{"key", "FILE",
              "The private key of whoever keeps the list; made if there is neither key nor list.",
              path_text(&o::authority_key)},
             {"until", "DATE",
              "The last day on which the peers belong to the run, such as 2027-01-31, UTC.",
              bound(&o::until, [](std::string_view v) -> result<std::string> {
                if (!end_of_day(v))
                  return failure{ec::bad_config, "is no date, such as 2027-01-31"};
                return std::string{v};
              })}});
  add_group(table, "output",
            {{"json", "FILE", "Write the result as JSON to this file.", action(set_json)}});
  add_group(table, "export",
            {{"format", "NAME",
              "safetensors: parameters and buffers by name. torchscript: the module of --model "
              "FILE.pt with them.",
              one_of(&o::export_format, {"safetensors", "torchscript"})}});
  add_group(
    table, "replay",
    {{"since", "TIME", "Begin at this local time: 02:00, 02:00:30 or 2026-11-29T02:00.",
      bound(&o::since, [](std::string_view v) { return result<std::string>{std::string{v}}; })},
     {"only", "KIND",
      "Events of one kind: problems (what went wrong), peers (who came and left), run (what the "
      "peers did themselves), epochs or rounds.",
      one_of(&o::only, {"problems", "peers", "run", "epochs", "rounds"})}});
  add_group(
    table, "bench",
    {{"steps", "N", "Micro-steps to measure.", whole(&o::steps, 1, 1U << 20U, "at least one")}});
}

} // namespace waggle::option_bindings
