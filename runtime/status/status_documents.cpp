#include "runtime/status/status_documents.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include <nlohmann/json.hpp>

#include "runtime/status/facts.hpp"

namespace waggle {

namespace {

using json = nlohmann::ordered_json; // writes NaN and infinite numbers as null

std::string_view role_of(const swarm_progress::peer& peer) {
  return role_name(!peer.claim.auxiliary && !peer.claim.reduces_only, peer.who.client_mode);
}

/// "rounds.failed": {"rounds":{"failed":…}}
json& at_path(json& doc, std::string_view path) {
  auto dot = path.find('.');
  auto& at = doc[std::string{path.substr(0, dot)}];
  return dot == std::string_view::npos ? at : at[std::string{path.substr(dot + 1)}];
}

json addresses_of(const std::vector<endpoint>& all) {
  json out = json::array();
  for (const auto& where : all)
    out.push_back(to_string(where));
  return out;
}

json of_departure(const departure& x) {
  return {{"t", watch::unix_ms(x.at)},
          {"reason", x.reason},
          {"code", x.code},
          {"lost", x.lost},
          {"times", x.times}};
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
    out["link"] = rates.encrypted       ? "tls"
                  : rates.shares_memory ? "shared memory"
                  : rates.exposed       ? "plain tcp"
                                        : "tcp";
  }
  if (peer.vitals.phase)
    out["state"] = to_string(static_cast<trainer_phase>(*peer.vitals.phase));
  if (peer.vitals.loss && std::isfinite(*peer.vitals.loss))
    out["loss"] = *peer.vitals.loss;
  if (peer.vitals.pass_seconds)
    out["pass_seconds"] = *peer.vitals.pass_seconds;
  for (std::size_t i = 0; i < peer_shares::names.size(); ++i)
    if (auto share = peer.vitals.shares.at(i))
      at_path(out, peer_shares::names[i]) = *share;
  for (std::string_view rest{peer.vitals.settings}; !rest.empty();) {
    auto line = rest.substr(0, rest.find('\n'));
    rest.remove_prefix(std::min(line.size() + 1, rest.size()));
    if (auto equals = line.find('='); equals != std::string_view::npos)
      out["settings"][std::string{line.substr(0, equals)}] = line.substr(equals + 1);
  }
  // A peer can claim any time.
  auto age = seconds_of(difference(now, peer.time));
  if (age > -3600 && age < 86'400)
    out["last_seen"] = watch::unix_ms(peer.time);
  for (const auto& slow : picture.slow.peers)
    if (slow.peer == id)
      out["slow"] = {{"cause", to_string(slow.cause)}, {"text", slow.text}};
  for (const auto& left : picture.left)
    if (left.peer == id && left.back)
      out["left"] = of_departure(left);
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

std::string status_document(const peer_view& of, symptom_times* since, swarm_time now) {
  json doc;
  for (const auto& each : facts())
    at_path(doc, each.path) = each.value(of);
  show_symptoms(doc, since, watch::unix_ms(now));
  return doc.dump(-1, ' ', false, json::error_handler_t::replace) + "\n";
}

std::string peers_document(const peer_picture& picture, const peer_id& self, swarm_time now) {
  json all = json::array();
  for (const auto& peer : picture.run.peers) {
    const auto& rate = peer.vitals.samples_per_second;
    bool has_epoch = !peer.claim.auxiliary;
    all.push_back({{"id", to_string(peer.who.id)},
                   {"addresses", addresses_of(peer.who.addresses)},
                   {"epoch", has_epoch ? json(peer.epoch.value()) : json(nullptr)},
                   {"samples_toward_epoch", has_epoch ? json(peer.samples) : json(nullptr)},
                   {"samples_per_second", rate ? json(*rate) : json(nullptr)},
                   {"compute_samples_per_second",
                    peer.samples_per_second > 0 ? json(peer.samples_per_second) : json(nullptr)},
                   {"self", peer.who.id == self},
                   {"connected", picture.connected.count(peer.who.id) > 0},
                   {"role", role_of(peer)}});
    add_known(all.back(), picture, peer, now);
  }
  json left = json::array();
  for (const auto& each : picture.left) {
    if (each.back)
      continue;
    json entry{{"peer", to_string(each.peer)}};
    entry.update(of_departure(each));
    entry["addresses"] = addresses_of(each.addresses);
    left.push_back(std::move(entry));
  }
  json doc{{"peers", all}, {"left", left}};
  return doc.dump(-1, ' ', false, json::error_handler_t::replace) + "\n";
}

std::string targets_document(const peer_picture& picture, const peer_record& self,
                             const std::string& run_tag) {
  json all = json::array();
  std::set<peer_id> listed;
  auto add = [&](const peer_id& peer, const std::vector<endpoint>& addresses,
                 std::string_view role) {
    if (!addresses.empty() && listed.insert(peer).second)
      all.push_back({{"targets", {to_string(addresses.front())}},
                     {"labels", {{"run", run_tag}, {"peer", short_name(peer)}, {"role", role}}}});
  };
  add(self.id, self.addresses, picture.role);
  for (const auto& peer : picture.run.peers)
    add(peer.who.id, peer.who.addresses, role_of(peer));
  for (const auto& [peer, now] : picture.present)
    add(peer, now.addresses, "node");
  for (const auto& each : picture.left)
    if (each.lost && !each.back && each.recent)
      add(each.peer, each.addresses, "lost");
  return all.dump(-1, ' ', false, json::error_handler_t::replace) + "\n";
}

std::string why_not_ready(const peer_picture& picture) {
  if (!picture.training)
    return why_not_joined(picture.dht);
  const auto& t = *picture.training;
  if (t.phase == trainer_phase::training || t.phase == trainer_phase::averaging
      || t.phase == trainer_phase::finished)
    return std::string{t.provisional ? symptom_of("split").says : ""};
  return std::string{to_string(t.phase)}
         + (t.waiting_for.empty() ? "" : ", waiting for " + t.waiting_for);
}

std::vector<notice> notices_of(const peer_picture& picture) {
  std::vector<notice> all;
  if (picture.training)
    all = picture.training->notices;
  if (picture.dht)
    all.insert(all.end(), picture.dht->notices.begin(), picture.dht->notices.end());
  return all;
}

std::string links_notice(const peer_picture& picture) {
  return picture.dht ? text_of(picture.dht->notices) : std::string{};
}

std::string duties(const peer_picture& picture) {
  if (!picture.helper || picture.helper->clients == 0)
    return {};
  return "reduces for " + std::to_string(picture.helper->clients)
         + (picture.helper->clients == 1 ? " client" : " clients");
}

} // namespace waggle
