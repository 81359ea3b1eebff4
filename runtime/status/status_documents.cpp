#include "runtime/status/status_documents.hpp"

#include <cmath>
#include <limits>
#include <utility>

#include <nlohmann/json.hpp>

#include "runtime/core/version.hpp"

namespace waggle {

namespace {

using json = nlohmann::ordered_json; // writes NaN and infinite numbers as null

/// The speed that this peer reported last; null before its first report.
json reported_speed(const peer_picture& picture, const peer_id& self) {
  for (const auto& peer : picture.run.peers)
    if (peer.who.id == self)
      return peer.samples_per_second;
  return nullptr;
}

const char* role_of(const swarm_progress::peer& peer) {
  if (peer.claim.auxiliary || peer.claim.reduces_only)
    return "auxiliary";
  return peer.who.client_mode ? "client" : "node";
}

/// What is only known of some peers.
void add_known(json& out, const peer_picture& picture, const swarm_progress::peer& peer,
               swarm_time now) {
  const auto& id = peer.who.id;
  if (auto link = picture.links.find(id); link != picture.links.end()) {
    const auto& rates = link->second;
    if (rates.rtt_ms > 0)
      out["rtt_ms"] = rates.rtt_ms;
    out["bytes_in_per_s"] = std::round(rates.bytes_in_per_s);
    out["bytes_out_per_s"] = std::round(rates.bytes_out_per_s);
    out["link"] = rates.shares_memory ? "shared memory" : "tcp";
  }
  if (peer.vitals.phase)
    out["state"] = to_string(static_cast<trainer_phase>(*peer.vitals.phase));
  if (peer.vitals.loss && std::isfinite(*peer.vitals.loss))
    out["loss"] = *peer.vitals.loss;
  if (peer.vitals.pass_seconds)
    out["pass_seconds"] = *peer.vitals.pass_seconds;
  // A peer can claim any time.
  auto age = seconds_of(difference(now, peer.time));
  if (age > -3600 && age < 86'400)
    out["last_seen"] = watch::unix_ms(peer.time);
  for (const auto& slow : picture.slow.peers)
    if (slow.peer == id)
      out["slow"] = {{"cause", to_string(slow.cause)}, {"text", slow.text}};
}

std::string why_not_joined(const std::optional<dht_status>& dht) {
  if (!dht)
    return "starting";
  if (dht->bootstrapped || dht->initial_peers == 0)
    return {};
  if (dht->bootstrap_failures.size() < dht->initial_peers)
    return "waiting for the first of " + std::to_string(dht->initial_peers)
           + " initial peers to answer";
  std::string reason = "none of the initial peers answers";
  auto separator = ": ";
  for (const auto& why : dht->bootstrap_failures)
    reason += std::exchange(separator, "; ") + why;
  return reason;
}

} // namespace

training_status not_started() {
  training_status s;
  s.loss = s.first_loss = std::numeric_limits<double>::quiet_NaN();
  return s;
}

std::string status_document(const peer_picture& picture, const peer_facts& facts) {
  bool trains = picture.training.has_value();
  const auto t = picture.training.value_or(training_status{});
  auto known = [](bool is, const auto& value) { return is ? json(value) : json(nullptr); };
  /// Null for a value that the peer does not have before it has done `work` itself.
  auto of_work = [&](double value, std::uint64_t work) {
    return known(trains && (value != 0 || work != 0), value);
  };
  json doc;
  doc["peer"] = to_string(facts.self);
  doc["run"] = facts.run_id;
  doc["run_tag"] = facts.run_tag;
  doc["version"] = version;
  doc["phase"] = trains ? to_string(t.phase) : "node";
  doc["epoch"] = known(trains, t.epoch.value());
  doc["global_epoch"] = (trains ? t.global_epoch : picture.run.global_epoch).value();
  doc["schedule_epoch"] = known(trains, t.schedule_epoch.value());
  doc["samples_toward_epoch"] = known(trains, t.samples_toward_epoch);
  doc["target_batch_size"] = known(t.target_batch_size > 0, t.target_batch_size);
  doc["loss"] = of_work(t.loss, t.steps);
  doc["first_loss"] = known(trains, t.first_loss);
  doc["eval_loss"] = known(trains, t.eval_loss);
  doc["eval_accuracy"] = known(trains, t.eval_accuracy);
  doc["eval_epoch"] = known(std::isfinite(t.eval_loss), t.eval_epoch.value());
  doc["seconds_left"] = known(trains, t.seconds_left);
  doc["samples"] = {{"offered", t.samples_offered},
                    {"used", t.samples_used},
                    {"dropped", t.samples_dropped},
                    {"pending", t.samples_pending()}};
  json passes = json::array();
  for (const auto& each : t.passes)
    if (each.once + each.twice > 0)
      passes.push_back(
        {{"pass", each.pass}, {"once", each.once}, {"twice", each.twice}, {"never", each.never}});
  doc["passes"] = known(!passes.empty(), passes);
  doc["rounds"] = {{"complete", picture.rounds_complete},
                   {"shrunk", picture.rounds_shrunk},
                   {"failed", picture.rounds_failed}};
  doc["local_fallbacks"] = t.local_fallbacks;
  doc["state_downloads"] = t.state_downloads;
  doc["steps"] = t.steps;
  doc["samples_per_second"] = known(trains, reported_speed(picture, facts.self));
  doc["compute_samples_per_second"] = of_work(t.samples_per_second, t.steps);
  doc["learning_rate"] = of_work(t.learning_rate, t.samples_used);
  doc["learning_rate_reductions"] =
    known(t.rate_reductions.has_value(), t.rate_reductions.value_or(0));
  doc["effective_batch"] = known(t.effective_batch > 0, t.effective_batch);
  doc["history"] = known(!t.past.branch.is_zero(), short_name(t.past.branch));
  doc["work"] = t.past.work; // samples times contributors since the run's start
  doc["group_size"] = !trains && picture.helper ? picture.helper->group_size : t.group_size;
  doc["provisional"] = t.provisional;
  doc["waiting_for"] = known(!t.waiting_for.empty(), t.waiting_for);
  auto notice = t.notice;
  if (auto links = links_notice(picture); !links.empty())
    notice += (notice.empty() ? "" : "; ") + links;
  doc["notice"] = known(!notice.empty(), notice);
  json slow = json::array();
  for (const auto& each : picture.slow.peers)
    slow.push_back(short_name(each.peer) + " " + std::string{to_string(each.cause)} + ": "
                   + each.text);
  if (!picture.slow.cannot_tell.empty())
    slow.push_back("cannot tell: " + picture.slow.cannot_tell);
  doc["slow"] = known(!slow.empty(), slow); // who slows the rounds down, and why
  doc["histories"] = t.histories;           // that live peers train
  doc["differing_peers"] = t.differing_peers;
  doc["first_round_seconds"] = known(t.first_round_seconds > 0, t.first_round_seconds);
  doc["last_outcome"] = t.last_outcome;
  doc["parameters"] = known(!t.parameters.is_zero(), to_string(t.parameters));
  doc["bytes"] = {{"in", facts.bytes_in}, {"out", facts.bytes_out}, {"shared", facts.bytes_shared}};
  doc["bandwidth"] = known(facts.bandwidth > 0, facts.bandwidth); // bytes a second
  doc["peers"] = picture.run.num_peers;
  doc["auxiliaries"] = picture.run.num_auxiliaries;
  doc["reduces_for_clients"] =
    known(picture.helper.has_value(), picture.helper.value_or(helper_status{}).clients);
  doc["uptime_seconds"] = facts.uptime;
  return doc.dump() + "\n";
}

std::string peers_document(const peer_picture& picture, const peer_id& self, swarm_time now) {
  json all = json::array();
  for (const auto& peer : picture.run.peers) {
    json addresses = json::array();
    for (const auto& where : peer.who.addresses)
      addresses.push_back(to_string(where));
    all.push_back({{"id", to_string(peer.who.id)},
                   {"addresses", addresses},
                   {"epoch", peer.epoch.value()},
                   {"samples_toward_epoch", peer.samples},
                   {"samples_per_second", peer.samples_per_second},
                   {"self", peer.who.id == self},
                   {"connected", picture.connected.count(peer.who.id) > 0},
                   {"role", role_of(peer)}});
    add_known(all.back(), picture, peer, now);
  }
  json left = json::array();
  for (const auto& each : picture.left)
    left.push_back(
      {{"peer", to_string(each.peer)}, {"t", watch::unix_ms(each.at)}, {"reason", each.reason}});
  json doc{{"peers", all}, {"left", left}};
  return doc.dump(-1, ' ', false, json::error_handler_t::replace) + "\n";
}

std::string targets_document(const peer_picture& picture, const peer_record& self,
                             const std::string& run_tag) {
  json all = json::array();
  std::set<peer_id> listed;
  auto add = [&](const peer_id& peer, const std::vector<endpoint>& addresses, const char* role) {
    if (!addresses.empty() && listed.insert(peer).second)
      all.push_back({{"targets", {to_string(addresses.front())}},
                     {"labels", {{"run", run_tag}, {"peer", short_name(peer)}, {"role", role}}}});
  };
  add(self.id, self.addresses, picture.training ? "trainer" : "node");
  for (const auto& peer : picture.run.peers)
    add(peer.who.id, peer.who.addresses,
        peer.claim.auxiliary || peer.claim.reduces_only ? "auxiliary" : "trainer");
  for (const auto& [peer, now] : picture.present)
    add(peer, now.addresses, "node");
  for (const auto& each : picture.left)
    if (each.lost)
      add(each.peer, each.addresses, "lost");
  return all.dump(-1, ' ', false, json::error_handler_t::replace) + "\n";
}

std::string why_not_ready(const peer_picture& picture) {
  if (!picture.training)
    return why_not_joined(picture.dht);
  const auto& t = *picture.training;
  if (t.phase == trainer_phase::training || t.phase == trainer_phase::averaging
      || t.phase == trainer_phase::finished)
    return t.provisional ? "provisional: cut off from most of the group, going on without it" : "";
  return std::string{to_string(t.phase)}
         + (t.waiting_for.empty() ? "" : ", waiting for " + t.waiting_for);
}

std::string links_notice(const peer_picture& picture) {
  return picture.dht ? picture.dht->notice : std::string{};
}

std::string duties(const peer_picture& picture) {
  if (!picture.helper || picture.helper->clients == 0)
    return {};
  return "reduces for " + std::to_string(picture.helper->clients)
         + (picture.helper->clients == 1 ? " client" : " clients");
}

} // namespace waggle
