// The part of the dht_router that answers other peers, and says what they need not answer.

#include <set>

#include "actors/caf_error.hpp"
#include "actors/discovery/dht_router.hpp"

namespace waggle {

caf::result<outbound_answer> dht_router::answer(const inbound_call& msg) {
  seen(msg.from);
  if (std::holds_alternative<wire::dht_ping>(msg.what)) {
    ctx_.metrics->count_dht_request_answered("ping");
    return outbound_answer{wire::dht_pong{ctx_.wall->now()}, {}};
  }
  if (const auto* find = std::get_if<wire::dht_find>(&msg.what)) {
    ctx_.metrics->count_dht_request_answered("find");
    return answer_find(*find, msg.from.id);
  }
  if (const auto* put = std::get_if<wire::dht_store>(&msg.what)) {
    ctx_.metrics->count_dht_request_answered("store");
    return outbound_answer{answer_store(*put, msg), {}};
  }
  if (const auto* wanted = std::get_if<wire::dial_back>(&msg.what))
    return reach_.dial_back(*wanted, msg);
  if (const auto* wanted = std::get_if<wire::introduce>(&msg.what))
    return punching_.introduce(*wanted, msg);
  return to_caf(ec::protocol_violation, "this is not for the DHT");
}

/// A peer that looks for peers is answered once we know whether it can be reached. So of two that
/// join at the same moment, the one that is answered later is told of the other one.
caf::result<outbound_answer> dht_router::answer_find(const wire::dht_find& question,
                                                     const peer_id& asker) {
  auto promise = make_response_promise<outbound_answer>();
  auto answer = [this, question, asker, promise]() mutable {
    promise.deliver(outbound_answer{known_here(question, asker), {}});
  };
  if (question.nodes_only)
    reach_.when_tried(asker, answer);
  else
    answer();
  return promise;
}

/// The peers that we know near the keys, and the records that we store under them. Stays within the
/// message limits, whatever is stored here; records that do not fit are omitted, and the asker
/// merges the answers of several peers.
wire::dht_found dht_router::known_here(const wire::dht_find& question, const peer_id& asker) const {
  std::size_t records_left = wire::records_per_message_max;
  std::size_t bytes_left = wire::header_bytes_max / 2;
  wire::dht_found found;
  std::set known(question.known.begin(), question.known.end());
  for (const auto& key : question.keys) {
    auto& answer = found.answers.emplace_back();
    answer.nearest =
      table_.nearest(key, wire::nearest_per_key_max, asker, routing_table::of::reached);
    if (question.nodes_only) {
      name_neighbours(key, asker, answer.nearest);
      continue;
    }
    store_.visit(key, ctx_.wall->now(), [&](const record& entry) {
      if (!known.empty() && known.contains(record_tag(ctx_.run_id, entry)))
        return true;
      auto bytes = entry.name.size() + entry.subkey.size() + entry.value.size() + 160;
      if (records_left == 0 || bytes_left < bytes)
        return false;
      --records_left;
      bytes_left -= bytes;
      answer.records.push_back(entry);
      return true;
    });
  }
  return found;
}

/// Adds to a search what this peer stores, or has found before: others leave it out.
void dht_router::begin_with_what_is_here(search& s) const {
  store_.visit(s.key, ctx_.wall->now(), [&](const record& entry) {
    s.merge.add(entry);
    return true;
  });
  if (s.latest && last_found_.first == s.key)
    for (const auto& [subkey, entry] : last_found_.second.newest())
      if (entry.expiration > ctx_.wall->now())
        s.merge.add(entry);
  for (const auto& [subkey, entry] : s.merge.newest())
    if (s.known.size() < wire::records_per_message_max)
      s.known.push_back(record_tag(ctx_.run_id, entry));
}

/// Adds to an answer the peers that we see at the asker's host: it may reach them, behind its
/// router, at addresses at which we do not.
void dht_router::name_neighbours(const dht_id& key, const peer_id& asker,
                                 std::vector<peer_record>& named) const {
  auto link = ctx_.links->find(asker);
  if (!link || link->host().empty())
    return;
  for (const auto& peer : table_.nearest(key, wire::nearest_per_key_max, asker)) {
    auto other = ctx_.links->find(peer.id);
    if (other && other->host() == link->host() && !table_.is_reached(peer.id)
        && named.size() < wire::nearest_per_key_max)
      named.push_back(peer);
  }
}

/// Stores those records of the calling peer that are its own, genuine and newer than the stored
/// ones, as far as the limits permit; one outcome per record.
wire::dht_stored dht_router::answer_store(const wire::dht_store& put, const inbound_call& call) {
  auto now = ctx_.wall->now();
  record_source source{ctx_.rounds->has_averaged_with(call.from.id), call.host};
  wire::dht_stored stored;
  for (const auto& entry : put.records) {
    auto key = record_key(ctx_.run_id, entry.kind, entry.name);
    auto outcome = refusal(entry, key, call.from.id, source.member);
    if (outcome == ec::none)
      outcome = store_.put(key, entry, now, source);
    if (outcome != ec::none)
      ctx_.metrics->count_dht_rejected(outcome);
    stored.outcomes.push_back(outcome);
  }
  return stored;
}

status dht_router::check(const record& entry) const {
  auto valid = validate_record(ctx_.run_id, entry, ctx_.wall->now(), *ctx_.verifier);
  if (valid && config_.accepts && rules_of(entry.kind)->of_applications && !config_.accepts(entry))
    return failure{ec::schema_mismatch, "this application does not accept the value of "
                                          + entry.name + " (node_options::accepts)"};
  return valid;
}

/// Why `entry` is not stored; ec::none: it may be. ec::not_owner: of another peer, or of a kind
/// that anybody may write; ec::not_found: a stranger's, and we know many peers that are nearer to
/// its key.
ec dht_router::refusal(const record& entry, const dht_id& key, const peer_id& from,
                       bool member) const {
  const auto* rules = rules_of(entry.kind);
  if (rules != nullptr && rules->of_applications && !config_.open_records)
    return ec::not_owner;
  if (auto valid = check(entry); !valid)
    return valid.error().code;
  // Peers store their own records only, so that each can be held to its limits. Applications have
  // keys of their own.
  if (rules->owned && !rules->of_applications && entry.subkey != from.raw())
    return ec::not_owner;
  if (member)
    return ec::none;
  auto nearer = table_.nearest(key, config_.nearer_max, from);
  bool is_far = nearer.size() == config_.nearer_max
                && distance(key, nearer.back().id) < distance(key, ctx_.record.id);
  return is_far ? ec::not_found : ec::none;
}

} // namespace waggle
