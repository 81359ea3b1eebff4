#include "actors/commands/swarm_summary.hpp"

#include <algorithm>

#include <nlohmann/json.hpp>

namespace waggle {

namespace {

using json_value = nlohmann::ordered_json;

json_value number(double value) {
  return std::isfinite(value) ? json_value(value) : json_value(nullptr);
}

std::string printed(const char* format, double value) {
  if (!std::isfinite(value))
    return "-";
  char text[64];
  std::snprintf(text, sizeof text, format, value);
  return text;
}

} // namespace

std::optional<peer_snapshot> parse_snapshot(const std::string& json) {
  auto doc = nlohmann::json::parse(json, nullptr, false);
  if (!doc.is_object() || !doc.contains("peer") || !doc["peer"].is_string())
    return std::nullopt;
  // What answers need not be a peer of ours: anything may be missing or of another kind.
  auto at = [](const nlohmann::json& object, const char* name) {
    return object.is_object() && object.contains(name) ? object[name] : nlohmann::json{};
  };
  auto whole = [](const nlohmann::json& v) {
    if (v.is_number_unsigned())
      return v.get<std::uint64_t>();
    auto real = v.is_number() ? v.get<double>() : 0.0;
    return real > 0 && real < 1e18 ? static_cast<std::uint64_t>(real) : std::uint64_t{0};
  };
  auto real = [](const nlohmann::json& v) {
    return v.is_number() ? v.get<double>() : std::numeric_limits<double>::quiet_NaN();
  };
  auto text = [](const nlohmann::json& v) {
    return v.is_string() ? v.get<std::string>() : std::string{};
  };
  peer_snapshot s;
  s.id = text(at(doc, "peer"));
  s.phase = text(at(doc, "phase"));
  s.epoch = whole(at(doc, "epoch"));
  s.samples_toward_epoch = whole(at(doc, "samples_toward_epoch"));
  s.loss = real(at(doc, "loss"));
  s.first_loss = real(at(doc, "first_loss"));
  s.used = whole(at(at(doc, "samples"), "used"));
  s.dropped = whole(at(at(doc, "samples"), "dropped"));
  s.complete = whole(at(at(doc, "rounds"), "complete"));
  s.shrunk = whole(at(at(doc, "rounds"), "shrunk"));
  s.failed = whole(at(at(doc, "rounds"), "failed"));
  s.last_outcome = text(at(doc, "last_outcome"));
  s.parameters = text(at(doc, "parameters"));
  s.bytes = whole(at(at(doc, "bytes"), "in")) + whole(at(at(doc, "bytes"), "out"));
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
  // A peer that came too late to train has no loss of its own.
  return std::isfinite(bar) && std::all_of(peers.begin(), peers.end(), [bar](const peer& p) {
           return p.killed || (p.joined_late && std::isnan(p.last.loss)) || p.last.loss < bar;
         });
}

std::string swarm_summary::json() const {
  json_value doc;
  doc["peers"] = json_value::array();
  json_value rounds = {{"complete", 0}, {"shrunk", 0}, {"failed", 0}};
  std::uint64_t used = 0;
  std::uint64_t dropped = 0;
  const peer_snapshot* most = nullptr;
  for (const auto& p : peers) {
    const auto& s = p.last;
    doc["peers"].push_back({{"id", s.id},
                            {"first_loss", number(s.first_loss)},
                            {"last_loss", number(s.loss)},
                            {"epoch", s.epoch},
                            {"samples", s.used},
                            {"killed", p.killed},
                            {"joined_late", p.joined_late}});
    used += s.used;
    dropped += s.dropped;
    if (most == nullptr
        || s.complete + s.shrunk + s.failed > most->complete + most->shrunk + most->failed)
      most = &s;
  }
  // A round has many members: the peer that took part in most of them counts for all.
  if (most != nullptr)
    rounds = {{"complete", most->complete}, {"shrunk", most->shrunk}, {"failed", most->failed}};
  doc["rounds"] = rounds;
  doc["samples"] = {{"used", used}, {"dropped", dropped}};
  doc["kills"] = kills;
  doc["joins"] = joins;
  doc["seconds"] = seconds;
  doc["parameters_equal"] = parameters_equal ? json_value(*parameters_equal) : json_value(nullptr);
  return doc.dump(2) + "\n";
}

std::string table_head() {
  return "peer      state      epoch  samples    loss  MB moved  last round";
}

std::string table_row(const swarm_summary::peer& peer) {
  const auto& s = peer.last;
  char line[256];
  std::snprintf(line, sizeof line, "%-8.8s  %-9.9s  %5llu  %7llu  %6s  %8.1f  %.20s",
                s.id.empty() ? "?" : s.id.c_str(), peer.killed ? "killed" : s.phase.c_str(),
                static_cast<unsigned long long>(s.epoch),
                static_cast<unsigned long long>(s.samples_toward_epoch),
                printed("%.3f", s.loss).c_str(), static_cast<double>(s.bytes) / 1e6,
                s.last_outcome.c_str());
  return line;
}

std::string swarm_summary::text() const {
  std::string out =
    "peer      epoch  first loss  last loss  samples  rounds complete  shrunk  failed  remarks\n";
  for (const auto& p : peers) {
    const auto& s = p.last;
    char line[256];
    std::snprintf(
      line, sizeof line, "%-8.8s  %5llu  %10s  %9s  %7llu  %15llu  %6llu  %6llu  %s%s\n",
      s.id.c_str(), static_cast<unsigned long long>(s.epoch), printed("%.3f", s.first_loss).c_str(),
      printed("%.3f", s.loss).c_str(), static_cast<unsigned long long>(s.used),
      static_cast<unsigned long long>(s.complete), static_cast<unsigned long long>(s.shrunk),
      static_cast<unsigned long long>(s.failed), p.killed ? "killed " : "",
      p.joined_late ? "joined later" : "");
    out += line;
  }
  auto promise = [&out](bool held, const std::string& what) {
    out += (held ? "held    " : "BROKEN  ") + what + "\n";
  };
  out += "\n";
  promise(losses_fell_below(0.6), "the loss of every peer is below 60 % of the run's start ("
                                    + printed("%.3f", start_loss()) + ")");
  if (parameters_equal)
    promise(*parameters_equal, "all parameters are byte-equal at the end");
  else
    out += "unknown all parameters are byte-equal: the peers were never seen at one epoch\n";
  char line[160];
  std::snprintf(line, sizeof line, "%llu killed, %llu joined later, %.0f seconds\n",
                static_cast<unsigned long long>(kills), static_cast<unsigned long long>(joins),
                seconds);
  return out + line;
}

} // namespace waggle
