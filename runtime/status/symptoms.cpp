#include "runtime/status/symptoms.hpp"

#include <algorithm>
#include <cmath>

#include "runtime/net/clock_offset.hpp"
#include "runtime/watch/json_fields.hpp"
#include "runtime/watch/slow_peers.hpp"

namespace waggle {

namespace {

using json = nlohmann::ordered_json;
using sights = std::vector<symptom::sight>;
using doc = const json&; // a status
using enum severity;

/// Each slow peer of this cause. There are few.
template <slow_cause Cause>
sights slow(doc s) {
  sights out;
  if (auto all = field(s, "slow"); all.is_array())
    for (const auto& each : all)
      if (auto peer = text_in(each, "peer"); text_in(each, "cause") == to_string(Cause)) {
        auto says = "peer " + peer
                    + (Cause == slow_cause::adds_little ? " adds little to the run" : " is slow");
        out.push_back({says, says + ": " + text_in(each, "text")});
      }
  return out;
}

std::string whole(double x) {
  return std::to_string(static_cast<std::uint64_t>(std::min(x, 1e9)));
}

constexpr char disk[] = "disk";
constexpr char memory[] = "memory";
/// What is in use of a machine's disk or memory, from 0 to 1.
template <const char* What>
sights full(doc s) {
  constexpr double nearly = 0.95;
  auto share = number_in(field(s, "machine"), What).value_or(0);
  if (share < nearly || share > 1)
    return {};
  return {{"", std::string{What} + " is in use up to " + whole(100 * share) + " %"}};
}

/// As long as in the alert (net::clock_limits::noticeable).
sights clock_off(doc s) {
  constexpr double noticeable = 0.5, a_century = 3e9;
  auto behind = number_in(s, "clock_skew_seconds").value_or(0);
  if (!(std::abs(behind) > noticeable) || std::abs(behind) > a_century)
    return {};
  auto offset = std::chrono::duration<double>{-behind};
  return {{"", "its clock is "
                 + net::how_far(std::chrono::duration_cast<swarm_clock::duration>(offset))
                 + " those of the others"}};
}

/// Of a peer of several processes, the one that the others wait for.
sights slow_rank(doc s) {
  auto ranks = field(s, "ranks");
  auto slowest = number_in(ranks, "slowest").value_or(-1);
  auto each = field(ranks, "each");
  if (slowest < 0 || !each.is_array() || slowest >= static_cast<double>(each.size()))
    return {};
  auto milliseconds = [](doc rank, const char* what) {
    return whole(1000 * std::max(number_in(rank, what).value_or(0), 0.0)) + " ms";
  };
  const auto& it = each[static_cast<std::size_t>(slowest)];
  auto says = "rank " + whole(slowest) + " of this peer is slow";
  return {{says, says + ": it works for " + milliseconds(it, "seconds") + " of each pass of "
                   + milliseconds(it, "pass_seconds") + " while the other ranks wait"}};
}

constexpr symptom table[]{
  // what the status shows
  {"split", bad, "this peer is cut off from most of its group and goes on without it",
   "look at the links between its machine and the others; connected again, the smaller part "
   "follows the larger one",
   "WaggleHistoriesApart",
   [](doc s) { return field(s, "provisional") == true ? sights(1) : sights{}; }},
  {"histories", bad, "",
   "connect the parts: give a peer of one part an address of the other as --initial-peers; the "
   "smaller part then follows the larger one",
   "WaggleSplitBrain",
   [](doc s) {
     auto n = number_in(s, "histories").value_or(0);
     return n > 1 ? sights{{"the run is split into " + whole(n) + " histories", ""}} : sights{};
   }},
  {"parameters", bad, "",
   "it downloads a state by itself; if this stays, restart it with an empty --data-dir",
   "WaggleStateMismatch",
   [](doc s) {
     auto n = number_in(s, "differing_peers").value_or(0);
     return n > 0 ? sights{{"this peer holds other parameters than " + whole(n)
                              + " of the peers at its epoch",
                            ""}}
                  : sights{};
   }},
  {"passes", warning, "",
   "look at the processor of its machine, which other programs may use; or let it compute less "
   "at once, with a smaller --micro-batch",
   "WagglePeerSlow", slow<slow_cause::passes>},
  {"starts_late", warning, "", "look at the load of its machine", "WagglePeerSlow",
   slow<slow_cause::starts_late>},
  {"sends_slowly", warning, "",
   "look at its uplink; a --codec that sends less, or a larger --target-batch-size, makes rounds "
   "cost less",
   "WagglePeerSlow", slow<slow_cause::sends_slowly>},
  {"reduces_slowly", warning, "",
   "look at its downlink and its processor; with --bandwidth it is given smaller parts",
   "WagglePeerSlow", slow<slow_cause::reduces_slowly>},
  {"far", warning, "",
   "raise --target-batch-size, so that rounds are fewer, or move it nearer to the others",
   "WagglePeerSlow", slow<slow_cause::far>},
  {"pauses", warning, "",
   "look for what stops its process now and then: memory that is swapped, or other programs",
   "WagglePeerSlow", slow<slow_cause::pauses>},
  {"adds_little", warning, "",
   "use a faster machine, or leave it out: each member makes rounds cost more", "WagglePeerSlow",
   slow<slow_cause::adds_little>},
  {"slow_rank", warning, "",
   "look at the load of its device and processor, and at what it does before a pass, such as "
   "reading data: all ranks of a group wait for the slowest",
   "", slow_rank},
  {"no_loss", warning, "this loop gives no loss, which its strategy needs",
   "pass the mean loss of the samples to each step; until then the losses of the others decide", "",
   [](doc s) {
     bool needs = field(field(s, "strategy"), "phase").is_string();
     bool gives = field(s, "loss").is_number();
     return needs && !gives && number_in(s, "steps").value_or(0) > 1 ? sights(1) : sights{};
   }},
  {"disk", warning, "the disk of --data-dir is nearly full",
   "make room there, or keep fewer checkpoints (--keep)", "WaggleDiskFilling", full<disk>},
  {"memory", warning, "the memory of its machine is nearly full",
   "end other programs, or use a smaller --micro-batch: the kernel ends a process when none is "
   "left",
   "WaggleMemoryFull", full<memory>},
  {"clock", warning, "the clock of its machine is off",
   "start the time service of its machine, e.g. chrony", "WaggleClockSkew", clock_off},
  {"plain_links", warning, "", "leave out --encrypt never, on all peers of the run at once", "",
   [](doc s) {
     auto n = number_in(s, "plain_links").value_or(0);
     auto links = n == 1 ? std::string{"a link"} : whole(n) + " links";
     return n > 0
              ? sights{{links + (n == 1 ? " with another machine is" : " with other machines are")
                          + " not encrypted: whoever reads the network has the model",
                        ""}}
              : sights{};
   }},
  // what a trainer finds in its epochs (run_health), and of other peers (doubts)
  {"slow_download", warning, "this peer cannot keep up with the run",
   "a larger --target-batch-size, or a faster link", "WaggleUnsuitableSettings"},
  {"small_rounds", warning, "not all peers take part in the rounds",
   "a larger --stall-timeout or --target-batch-size; with many groups a larger --matchmaking-time",
   "WaggleUnsuitableSettings"},
  {"own_gradients", warning, "rounds fail, and this peer uses its own gradients",
   "an --averaging-timeout of twice the longest round; if it is larger already, better links",
   "WaggleUnsuitableSettings"},
  {"short_epochs", warning, "rounds and downloads cost more than passes",
   "a larger --target-batch-size", "WaggleUnsuitableSettings"},
  {"small_batches", warning, "the target batch is too small for so many peers",
   "a larger --target-batch-size, or a smaller --micro-batch", "WaggleUnsuitableSettings"},
  {"zero_updates", warning, "the run learns nothing, because its gradients are zero",
   "other --data, or a smaller --lr", "WaggleUnsuitableSettings"},
  {"history", warning, "other peers claim a history that this one does not believe", "", ""},
  {"claims", warning, "", "", ""},
  // what the DHT finds
  {"initial_peers", warning, "an initial peer leads to this peer itself", "", ""},
  {"reach", warning, "other peers do not reach this one",
   "open or forward its port, or announce an address that others reach", "WaggleUnreachable"},
  {"path_mtu", warning, "large messages do not pass", "", ""},
  // what `waggle doctor` finds
  {"ended", bad, "",
   "read the end of its log, and start it again with the same command: it catches up",
   "WagglePeerDown"},
  {"frozen", bad, "",
   "look at that process: continue it (kill -CONT) or end it; started again with the same command, "
   "it catches up",
   "WagglePeerDown"},
  {"silent", warning, "",
   "if other peers do not reach it either: start it again, open that port, or announce another "
   "address there; otherwise only this machine is shut out",
   ""},
  {"away", bad, "",
   "look at the links between its machine and the others; if they work again, give it an address "
   "of the others as --initial-peers",
   ""},
  {"left", warning, "", "if this goes on, read its log, and look at its machine and link", ""},
  {"version", warning, "", "use one version on all peers", ""},
  {"settings", warning, "", "", ""},
};

} // namespace

std::string_view to_string(severity x) {
  constexpr std::string_view names[]{"good", "warning", "bad"};
  return names[static_cast<std::size_t>(x)];
}

std::span<const symptom> symptoms() {
  return table;
}

const symptom& symptom_of(std::string_view matter) {
  auto row = std::ranges::find(table, matter, &symptom::matter);
  return row != std::end(table) ? *row : *std::prev(row);
}

std::vector<finding_of_peer> symptoms_in(const json& status) {
  std::vector<finding_of_peer> out;
  auto add = [&](const symptom& row, std::string says, notice what) {
    if (what.cure.empty())
      what.cure = row.cure;
    if (says.empty())
      says = row.says.empty() ? what.seen : row.says;
    if (what.seen.empty())
      what.seen = says;
    out.push_back({&row, std::move(what), std::move(says)});
  };
  for (const auto& row : table)
    if (row.find != nullptr)
      for (auto& [says, seen] : row.find(status))
        add(row, says, {std::string{row.matter}, seen, {}});
  if (auto given = field(status, "notices"); given.is_array())
    for (const auto& each : given) {
      notice what{text_in(each, "matter"), text_in(each, "seen"), text_in(each, "cure")};
      if (const auto& row = symptom_of(what.matter); row.find == nullptr && !what.empty())
        add(row, {}, std::move(what));
    }
  std::ranges::stable_sort(out, std::greater{}, [](const auto& x) { return x.row->how; });
  return out;
}

void show_symptoms(json& status, symptom_times* since, std::int64_t now) {
  json all = json::array();
  std::string text;
  symptom_times present;
  for (const auto& [row, what, says] : symptoms_in(status)) {
    auto began = since != nullptr && since->contains(what.matter) ? since->at(what.matter) : now;
    present.emplace(what.matter, began);
    text += (text.empty() ? "" : "; ") + what.text();
    all.push_back({{"matter", what.matter},
                   {"level", to_string(row->how)},
                   {"says", says},
                   {"seen", what.seen},
                   {"cure", what.cure.empty() ? json(nullptr) : json(what.cure)},
                   {"since", began}});
  }
  status["notice"] = text.empty() ? json(nullptr) : json(text);
  status["notices"] = std::move(all);
  if (since != nullptr)
    *since = std::move(present);
}

} // namespace waggle
