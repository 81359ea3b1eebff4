#include <filesystem>
#include <fstream>
#include <iostream>

#include <nlohmann/json.hpp>

#include "runtime/cli/commands.hpp"
#include "runtime/cli/readable.hpp"
#include "runtime/cli/signals.hpp"
#include "runtime/core/disk.hpp"
#include "runtime/core/try.hpp"
#include "runtime/net/http_front.hpp"
#include "runtime/status/live_page.hpp"
#include "runtime/watch/replay.hpp"
#include "runtime/watch/replay_text.hpp"
#include "runtime/watch/timeline.hpp"

namespace waggle {

namespace {

namespace fs = std::filesystem;

/// A folder stands for the logs in it, for those in its folder `events` (a peer's --data-dir), and
/// for those of the peers in it. A peer has logs of rounds beside those of the rest.
result<std::vector<fs::path>> logs_of(const std::vector<std::string>& names) {
  auto files = make_system_disk();
  std::vector<fs::path> out;
  for (const auto& name : names) {
    std::error_code error;
    if (!fs::is_directory(name, error)) {
      out.emplace_back(name);
      continue;
    }
    auto before = out.size();
    std::vector<fs::path> folders{name, fs::path{name} / "events"};
    for (const auto& each : fs::directory_iterator{name, error})
      if (fs::is_directory(each.path() / "events", error))
        folders.push_back(each.path() / "events");
    for (const auto& folder : folders) {
      WAGGLE_TRY(found, files->list(folder));
      for (const auto& each : *found)
        if (each.ends_with(".jsonl"))
          out.push_back(folder / each);
    }
    if (out.size() == before)
      return failure{ec::bad_config,
                     "there is no event log in " + name
                       + ": give event logs (events-….jsonl), or the folders of peers"};
  }
  return out;
}

/// The same event in ASCII: a line may contain anything that JSON permits, and goes to a terminal.
std::string ascii_line(const std::string& line) {
  auto value = nlohmann::ordered_json::parse(line, nullptr, false);
  return value.is_discarded() ? std::string{}
                              : value.dump(-1, ' ', true, nlohmann::json::error_handler_t::replace);
}

/// Shows the page until a signal ends it.
int serve(timeline all, const std::vector<endpoint>& where) {
  hold_signals();
  auto from = std::make_shared<const recording>(std::move(all));
  net::http_settings settings;
  settings.handler = [from](const net::http_request& request) {
    return replay_page(from, request);
  };
  settings.events = std::make_shared<net::net_events>();
  // It is served to this machine only, and no training is beside it.
  settings.answering = std::make_shared<net::work_bucket>(net::work{1h});
  net::http_front front{std::move(settings), {64, 64}};
  auto bound = front.listen(where, {});
  if (!bound)
    return bad_usage(bound.error().detail);
  for (const auto& each : *bound)
    std::cout << "the replay is at http://" << to_string(each) << "/\n";
  std::cout.flush();
  while (!told_to_end(1h)) {
  }
  return exit_clean;
}

int run_replay(const run_options& options) {
  bool serves = options.given.contains("listen");
  bool chooses = !options.since.empty() || !options.only.empty();
  if (serves && (options.json || chooses))
    return bad_usage("--json, --since and --only are for the printed events, and --listen shows a "
                     "page of all of them: leave one of the two out");
  auto logs = logs_of(options.arguments);
  if (!logs)
    return bad_usage(logs.error().detail);
  timeline all;
  for (const auto& name : *logs) {
    std::ifstream in{name, std::ios::binary};
    if (!in)
      return bad_usage("cannot read " + name.string());
    all.read(in);
  }
  if (auto aligned = all.align(); !aligned)
    return bad_usage(aligned.error().detail);
  if (all.left_out() > 0)
    warn("lines left out, which are torn, of another version, or no events: "
         + readable_count(all.left_out()));
  for (const auto& peer : all.unaligned())
    warn("peer " + short_name(peer)
         + " shares no round with the others: its own clock was used for its events");
  if (serves)
    return serve(std::move(all), options.listen);
  replay_choice how{options.only};
  if (!options.since.empty()) {
    auto since = time_within(options.since, all.events().front().t, all.events().back().t);
    if (!since)
      return bad_usage("--since " + options.since + " " + since.error().detail);
    how.since = *since;
  }
  constexpr std::size_t text_max = 1000;
  if (options.json) {
    for (const auto& event : all.events())
      if (is_wanted(how, event))
        std::cout << ascii_line(event.line) << "\n";
  } else {
    for (const auto& line : replay_text(all, how))
      std::cout << without_control_characters(line, text_max) << "\n";
  }
  return exit_clean;
}

} // namespace

command replay_command() {
  return {
    .name = "replay",
    .summary = "Prints or shows what happened in a run, from the event logs of its peers: waggle "
               "replay DIR…",
    .details =
      "  waggle replay /tmp/peer1 /tmp/peer2\n"
      "  waggle replay /tmp/peer* --since 02:00 --only problems\n"
      "  waggle replay /tmp/peer* --listen 127.0.0.1:0    the page of the peers, to a browser\n"
      "DIR: the --data-dir of a peer, or one of its logs. The peers' clocks are corrected by\n"
      "the rounds that they share. With --json: the lines as they were written, in order.\n",
    .groups = {"output", "replay"},
    .arguments = {{"DIR", "The folder of a peer, or an event log; there may be several."}},
    .run = run_replay,
    .json_to_output = true,
    .single_options = {"listen"},
    .more_arguments = true};
}

} // namespace waggle
