#include "runtime/cli/swarm_summary.hpp"

#include <algorithm>
#include <cmath>
#include <map>

#include "runtime/cli/readable.hpp"
#include "runtime/cli/swarm_table.hpp"
#include "runtime/watch/json_fields.hpp"

namespace waggle {

namespace {

using json_value = nlohmann::ordered_json; // writes NaN as null

/// Ids and digests are the longest texts that are used.
constexpr std::size_t text_max = 64;

} // namespace

std::optional<peer_snapshot> parse_snapshot(const std::string& json) {
  auto parsed = parse_document(json);
  if (!parsed || !field(*parsed, "peer").is_string())
    return std::nullopt;
  // The document is untrusted: any field may be missing or of another type.
  const auto& doc = *parsed;
  auto whole = [](const json_value& object, const char* name) {
    auto found = field(object, name);
    if (found.is_number_unsigned())
      return found.get<std::uint64_t>();
    auto real = number_in(object, name).value_or(0);
    return real > 0 && real < 1e18 ? static_cast<std::uint64_t>(real) : std::uint64_t{0};
  };
  auto real = [&](const char* name) { return number_in(doc, name).value_or(std::nan("")); };
  auto text = [&](const char* name) { return printable(text_in(doc, name), text_max); };
  const auto samples = field(doc, "samples"), rounds = field(doc, "rounds");
  const auto bytes = field(doc, "bytes"), passes = field(doc, "passes");
  peer_snapshot s;
  s.id = text("peer");
  s.phase = text("phase");
  s.epoch = whole(doc, "epoch");
  s.samples_toward_epoch = whole(doc, "samples_toward_epoch");
  s.loss = real("loss");
  s.first_loss = real("first_loss");
  s.eval_loss = real("eval_loss");
  s.eval_accuracy = real("eval_accuracy");
  s.used = whole(samples, "used");
  s.dropped = whole(samples, "dropped");
  constexpr std::size_t passes_max = 1'000;
  if (passes.is_array() && passes.size() <= passes_max)
    for (const auto& each : passes)
      s.passes.push_back(
        {whole(each, "pass"), whole(each, "once"), whole(each, "twice"), whole(each, "never")});
  s.complete = whole(rounds, "complete");
  s.shrunk = whole(rounds, "shrunk");
  s.failed = whole(rounds, "failed");
  s.last_outcome = text("last_outcome");
  s.parameters = text("parameters");
  s.bytes_received = whole(bytes, "in");
  s.bytes_sent = whole(bytes, "out");
  s.bytes_shared = whole(bytes, "shared");
  return s;
}

double swarm_summary::start_loss() const {
  for (const auto& p : peers)
    if (!p.joined_late && std::isfinite(p.last.first_loss))
      return p.last.first_loss;
  return std::numeric_limits<double>::quiet_NaN();
}

bool swarm_summary::losses_fell_below(double ratio) const {
  auto bar = ratio * start_loss();
  // A peer that joined too late to train has no loss of its own.
  return std::isfinite(bar) && std::all_of(peers.begin(), peers.end(), [bar](const peer& p) {
           return p.killed || (p.joined_late && std::isnan(p.last.loss)) || p.last.loss < bar;
         });
}

std::vector<peer_snapshot::pass> swarm_summary::passes() const {
  std::vector<peer_snapshot::pass> out;
  for (const auto& p : peers)
    if (!p.killed && p.last.passes.size() > out.size())
      out = p.last.passes;
  return out;
}

std::optional<bool> swarm_summary::compare_parameters() const {
  const peer_snapshot* first = nullptr;
  bool equal = true;
  for (const auto& p : peers) {
    if (p.killed)
      continue;
    if (p.silent || p.last.parameters.empty() || (first != nullptr && first->epoch != p.last.epoch))
      return std::nullopt;
    equal = equal && (first == nullptr || first->parameters == p.last.parameters);
    first = &p.last;
  }
  return first == nullptr ? std::nullopt : std::optional{equal};
}

std::vector<std::string> swarm_summary::differences(std::uint64_t epochs) const {
  std::map<std::string, std::size_t> peers_with; // parameters → peers at the end that have them
  for (const auto& p : peers)
    if (!p.killed && p.last.epoch == epochs && !p.last.parameters.empty())
      ++peers_with[p.last.parameters];
  auto most = std::max_element(peers_with.begin(), peers_with.end(),
                               [](const auto& a, const auto& b) { return a.second < b.second; });
  std::vector<std::string> out;
  for (const auto& p : peers) {
    if (p.killed)
      continue;
    auto who = "peer " + short_name(p);
    const auto& s = p.last;
    if (s.epoch != epochs)
      out.push_back(who + " ended at epoch " + readable_count(s.epoch) + " of "
                    + readable_count(epochs)
                    + (p.silent          ? ": it did not answer at the end"
                       : s.phase.empty() ? ""
                                         : ", in phase " + state_of(p)));
    else if (!exact)
      continue;
    else if (s.parameters.empty())
      out.push_back(who + " did not say which parameters it ended with");
    else if (s.parameters != most->first)
      out.push_back(who + " ended with parameters " + s.parameters.substr(0, 8) + ", most with "
                    + most->first.substr(0, 8));
  }
  return out;
}

std::string swarm_summary::json() const {
  json_value doc;
  doc["peers"] = json_value::array();
  std::uint64_t used = 0;
  std::uint64_t dropped = 0;
  const peer_snapshot none;
  const auto* most = &none;
  for (const auto& p : peers) {
    const auto& s = p.last;
    doc["peers"].push_back(
      {{"id", s.id},
       {"first_loss", s.first_loss},
       {"last_loss", s.loss},
       {"eval_loss", s.eval_loss},
       {"eval_accuracy", s.eval_accuracy},
       {"epoch", s.epoch},
       {"samples", s.used},
       {"bytes",
        {{"sent", s.bytes_sent}, {"received", s.bytes_received}, {"shared", s.bytes_shared}}},
       {"killed", p.killed},
       {"joined_late", p.joined_late}});
    used += s.used;
    dropped += s.dropped;
    if (s.complete + s.shrunk + s.failed > most->complete + most->shrunk + most->failed)
      most = &s;
  }
  // Members count the same rounds, so the numbers of the peer with the most rounds are reported.
  doc["rounds"] = {
    {"complete", most->complete}, {"shrunk", most->shrunk}, {"failed", most->failed}};
  doc["samples"] = {{"used", used}, {"dropped", dropped}};
  doc["passes"] = json_value::array();
  for (const auto& each : passes())
    doc["passes"].push_back(
      {{"pass", each.number}, {"once", each.once}, {"twice", each.twice}, {"never", each.never}});
  doc["kills"] = kills;
  doc["joins"] = joins;
  doc["seconds"] = seconds;
  doc["parameters_equal"] = parameters_equal ? json_value(*parameters_equal) : json_value(nullptr);
  doc["strategy"] = strategy;
  return doc.dump(2) + "\n";
}

std::string swarm_summary::text(std::size_t width) const {
  std::string out;
  for (const auto& line : summary_table(peers, width))
    out += line + "\n";
  auto promise = [&out](bool held, const std::string& what) {
    out += (held ? "held    " : "BROKEN  ") + what + "\n";
  };
  out += "\n";
  promise(losses_fell_below(0.6), "the loss of every peer is below 60 % of the run's start ("
                                    + readable_loss(start_loss()) + ")");
  if (!exact)
    out += "        each peer has parameters of its own: " + strategy + " averages them\n";
  else if (parameters_equal)
    promise(*parameters_equal,
            "the parameters (above 1 MiB, a window of them) are byte-equal at the end");
  else
    out += "unknown the parameters are byte-equal: the peers were not all seen at one epoch\n";
  for (const auto& each : passes()) {
    auto seen = "pass " + readable_count(each.number)
                + " over the data: " + readable_count(each.once) + " samples in one update, "
                + readable_count(each.twice) + " in two, " + readable_count(each.never)
                + " in none";
    if (each.never > 0)
      out += "        " + seen + " so far\n";
    else
      promise(each.twice == 0, seen);
  }
  std::uint64_t used = 0;
  std::uint64_t dropped = 0;
  double moved = 0;
  for (const auto& p : peers) {
    used += p.last.used;
    dropped += p.last.dropped;
    moved += static_cast<double>(p.last.bytes_moved());
  }
  out += readable_count(used) + " samples used, " + readable_count(dropped) + " dropped, "
         + readable_bytes(moved) + " moved\n";
  return out + readable_count(kills) + " killed, " + readable_count(joins) + " joined later, "
         + readable_duration(seconds) + "\n";
}

} // namespace waggle
