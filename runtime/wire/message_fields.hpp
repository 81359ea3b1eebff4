#pragma once

// The fields of every message, once for both directions: the name in waggle_wire.proto, the member
// of the struct, and the bounds of what peers may send. Numbers are also bounded by their type in
// the struct. Used by convert.cpp; tests use it for parts of messages.

#include <string>
#include <utility>
#include <vector>

#include "runtime/crypto/digest.hpp"
#include "runtime/crypto/member_list.hpp"
#include "runtime/wire/field_io.hpp"
#include "runtime/wire/messages.hpp"

namespace waggle::wire {

/// For messages with the same fields.
template <class T, class... All>
concept one_of = (std::is_same_v<T, All> || ...);

// -- parts of messages ---------------------------------------------------------------------------

/// A digest or signature that is left out if it is zero.
void unless_zero(const char* name, auto& io, auto& x) {
  if (io.has(name, !x.is_zero()))
    io(name, x);
}

void fields(of<endpoint>, auto& io, auto& x) {
  io("host", x.host, {1, host_bytes_max});
  io("port", x.port, {1});
}

template <class Io>
void fields(of<peer_record>, Io& io, auto& x) {
  io("key", x.key);
  io("addresses", x.addresses, {0, addresses_max});
  io("client_mode", x.client_mode);
  if constexpr (Io::reads)
    x.id = peer_id_of(x.key); // derived from the key, so that it cannot be forged
}

/// Bounds only; `validate_record` checks whether a record is genuine.
void fields(of<record>, auto& io, auto& x) {
  io("kind", x.kind);
  const auto* known = rules_of(x.kind);
  io.require("kind", known != nullptr);
  auto rules = known != nullptr ? *known : record_rules{};
  io("name", x.name, {0, rules.name_bytes_max});
  io("subkey", x.subkey, {0, rules.subkey_bytes_max});
  io("value", x.value, {0, rules.value_bytes_max});
  io("expiration", x.expiration);
  io("sequence", x.sequence);
  io("tombstone", x.tombstone);
  bool is_signed = !x.owner.is_zero() || !x.by.is_zero();
  if (io.has("owner", is_signed) || io.has("signature", is_signed)) {
    io("owner", x.owner);
    io("signature", x.by);
  }
}

void fields(of<round_view>, auto& io, auto& x) {
  io("number", x.number);
  io("contributors", x.contributors);
  io("participants", x.participants, {1});
  io("adopted", x.adopted);
  unless_zero("result", io, x.result);
}

void fields(of<codec_run>, auto& io, auto& x) {
  io("elements", x.elements, {1, plan_elements_max});
  io("codec", x.codec);
  io.require("codec", is_known(x.codec));
}

void codecs(const char* name, auto& io, auto& x) {
  io(name, x, {0, codec_runs_max});
  io.require(name, elements_of(x) <= plan_elements_max);
}

void fields(of<round_member>, auto& io, auto& x) {
  io("peer", x.peer);
  io("mode", x.mode, {0, 2});
}

template <class Io>
void fields(of<round_plan>, Io& io, auto& x) {
  io("id", x.id);
  io("prefix", x.prefix, {0, prefix_bytes_max});
  io("epoch", x.epoch);
  io("members", x.members, {0, round_members_max});
  io("elements", x.elements);
  io("part_elements", x.part_elements);
  codecs("codecs", io, x.codecs);
  io("shares", x.shares, {0, round_members_max});
  io("min_contributors", x.min_contributors);
  io("aggregator", x.reduce_by.how);
  io("faulty_max", x.reduce_by.faulty_max);
  io("gathered", x.gathered, {0, round_members_max});
  io("check_share", x.reduce_by.check_share);
  io("one_host", x.one_host);
  if constexpr (Io::reads)
    io.require("id", io.why() == ec::none && validate_plan(x).ok());
}

/// What messages about a round begin with: its id, and the number of the view if they are about
/// one.
void begin(auto& io, auto& x) {
  io("round", x.round);
  if constexpr (requires { x.view + 1; })
    io("view", x.view);
}

// -- dht -----------------------------------------------------------------------------------------

template <one_of<dht_ping, goodbye, cancel> T>
void fields(of<T>, auto&, auto&) {}

void fields(of<dht_pong>, auto& io, auto& x) {
  io("now", x.now);
}

void fields(of<dial_back>, auto& io, auto& x) {
  io("ports", x.ports, {1});
  io.require("ports", x.ports.size() <= addresses_max && std::ranges::count(x.ports, 0) == 0);
}

template <one_of<dialled_back, introduced> T>
void fields(of<T>, auto& io, auto& x) {
  io("outcome", x.outcome);
}

template <one_of<introduce, reach_note> T>
void fields(of<T>, auto& io, auto& x) {
  io("peer", x.peer);
}

void fields(of<punch_note>, auto& io, auto& x) {
  io("peer", x.peer);
  io("where", x.where);
  io("wait_ms", x.wait_ms, {0, punch_wait_ms_max});
}

void fields(of<members_note>, auto& io, auto& x) {
  io("list", x.list, {member_list::bytes_min, member_list::bytes_max});
}

void fields(of<dht_find>, auto& io, auto& x) {
  io("keys", x.keys, {1, keys_per_find_max});
  io("nodes_only", x.nodes_only);
  io("known", x.known, {0, records_per_message_max});
}

template <>
inline constexpr bool is_one_field<dht_found::answer> = false;

void fields(of<dht_found::answer>, auto& io, auto& x) {
  io("records", x.records, {0, records_per_message_max});
  io("nearest", x.nearest, {0, nearest_per_key_max});
}

void fields(of<dht_found>, auto& io, auto& x) {
  io("answers", x.answers, {0, keys_per_find_max});
}

void fields(of<dht_store>, auto& io, auto& x) {
  io("records", x.records, {0, records_per_message_max});
}

void fields(of<dht_stored>, auto& io, auto& x) {
  io("outcomes", x.outcomes, {0, records_per_message_max});
}

// -- matchmaking and open groups -----------------------------------------------------------------

void fields(of<join_group>, auto& io, auto& x) {
  io("prefix", x.prefix, {0, prefix_bytes_max});
  io("group_key", x.group_key, {0, group_key_bytes_max});
  io("schema", x.schema);
  io("epoch", x.epoch);
  io("expiration", x.expiration);
  io("mode", x.mode, {0, 2});
  io("bandwidth", x.bandwidth);
  io("self", x.self);
  io("gather", x.gather, {0, gather_bytes_max});
  io("bandwidth_declared", x.bandwidth_declared);
}

void fields(of<join_reply>, auto& io, auto& x) {
  io("code", x.code);
  io("suggested", x.suggested);
}

void fields(of<begin_group>, auto& io, auto& x) {
  io("plan", x.plan);
}

void fields(of<disband_group>, auto& io, auto& x) {
  io("prefix", x.prefix, {0, prefix_bytes_max});
  io("suggested", x.suggested);
}

void fields(of<leave_group>, auto& io, auto& x) {
  io("prefix", x.prefix, {0, prefix_bytes_max});
}

void fields(of<enter_group>, auto& io, auto& x) {
  io("prefix", x.prefix, {0, prefix_bytes_max});
  io("schema", x.schema);
  io("mode", x.mode, {0, 2});
  io("bandwidth", x.bandwidth);
  io("bandwidth_declared", x.bandwidth_declared);
  io("branch", x.branch);
  unless_zero("unreached", io, x.unreached);
}

void fields(of<vector_codecs>, auto& io, auto& x) {
  codecs("codecs", io, x.codecs);
  io.require("codecs", !x.codecs.empty());
}

void fields(of<next_plan>, auto& io, auto& x) {
  io("replaces", x.replaces);
  io("plan", x.plan);
  io("branch", x.branch);
  unless_zero("schema", io, x.schema);
  io("members_max", x.members_max, {0, round_members_max});
  io("vectors", x.vectors, {0, vectors_in_turn_max});
  io("all_each_epoch", x.all_each_epoch);
}

void fields(of<call_round>, auto& io, auto& x) {
  io("upcoming", x.upcoming);
}

// -- progress ------------------------------------------------------------------------------------

void fields(of<progress_push>, auto& io, auto& x) {
  io("entry", x.entry);
}

void fields(of<progress_note>, auto& io, auto& x) {
  io("epoch", x.epoch);
  io("branch", x.branch);
  io("samples", x.samples);
  io("samples_per_second", x.samples_per_second);
}

// -- averaging -----------------------------------------------------------------------------------

void fields(of<part>, auto& io, auto& x) {
  begin(io, x);
  io("kind", x.kind, {0, 3});
  io("index", x.index, {0, parts_max - 1});
  io("offset", x.offset, {0, plan_elements_max});
  io("count", x.count, {1, part_elements_max});
  io("weight", x.weight, {}, ec::bad_weight);
  io("contributors", x.contributors);
  io("weights", x.weights, {0, round_members_max}, ec::bad_weight);
  io("member", x.member, {0, round_members_max - 1});
}

using shown_promise = std::pair<std::size_t, takeover_promise>;

void fields(of<shown_promise>, auto& io, auto& x) {
  io("member", x.first, {0, round_members_max - 1});
  io("view", x.second.view);
  io("prepared", x.second.prepared);
  unless_zero("value", io, x.second.value);
  io("by", x.second.by);
}

template <class Io>
void fields(of<round_propose>, Io& io, auto& x) {
  begin(io, x);
  io("view", x.view);
  std::vector<shown_promise> shown(x.promises.begin(), x.promises.end());
  io("promises", shown, {0, round_members_max});
  if constexpr (Io::reads)
    for (auto& [member, promise] : shown) {
      io.require("promises", x.promises.empty() || x.promises.rbegin()->first < member);
      promise.promised = x.view.number;
      promise.knows_view = true;
      x.promises.emplace(member, promise);
    }
}

void fields(of<round_prepared>, auto& io, auto& x) {
  begin(io, x);
  io("result", x.result);
  io("by", x.by);
}

void fields(of<round_key_share>, auto& io, auto& x) {
  begin(io, x);
  io("member", x.member, {0, round_members_max - 1});
  io("share", x.share);
  unless_zero("pledges", io, x.pledges);
}

void fields(of<round_pledge>, auto& io, auto& x) {
  begin(io, x);
  io("member", x.member, {0, round_members_max - 1});
  io("commitment", x.commitment);
  io("contributes", x.contributes);
}

void fields(of<round_pledge_digests>, auto& io, auto& x) {
  begin(io, x);
  io("pledges", x.pledges, {1, round_members_max});
}

void fields(of<round_checked>, auto& io, auto& x) {
  begin(io, x);
}

void fields(of<round_challenge>, auto& io, auto& x) {
  begin(io, x);
  io("part", x.part, {0, parts_max - 1});
}

void fields(of<round_digests>, auto& io, auto& x) {
  begin(io, x);
  io("groups", x.groups, {1, result_groups_max});
}

void fields(of<round_suspect>, auto& io, auto& x) {
  begin(io, x);
  io("member", x.member, {0, round_members_max - 1});
  io("reason", x.reason);
}

void fields(of<round_commit>, auto& io, auto& x) {
  begin(io, x);
  io("view", x.view);
  io("proof", x.proof, {0, round_members_max});
}

void fields(of<round_abort>, auto& io, auto& x) {
  begin(io, x);
  io("reason", x.reason);
}

void fields(of<round_takeover>, auto& io, auto& x) {
  begin(io, x);
  io("number", x.number);
}

void fields(of<round_promise>, auto& io, auto& x) {
  begin(io, x);
  io("promised", x.promised);
  io("knows_view", x.knows_view);
  if (x.knows_view)
    io("view", x.view);
  io("prepared", x.prepared);
  io("committed", x.committed);
  io.require("knows_view", x.knows_view || (!x.prepared && !x.committed));
  io("proof", x.proof, {0, round_members_max});
  unless_zero("value", io, x.value);
  unless_zero("by", io, x.by);
}

void fields(of<bandwidth_report>, auto& io, auto& x) {
  begin(io, x);
  io("bandwidth", x.bandwidth);
  io("wants_lead", x.wants_lead);
}

// -- state ---------------------------------------------------------------------------------------

void fields(of<open_state>, auto& io, auto& x) {
  io("branch", x.branch);
  io("epoch_min", x.epoch_min);
  unless_zero("owner", io, x.owner);
  io("leaves", x.leaves);
}

void fields(of<state_header>, auto& io, auto& x) {
  io("epoch", x.epoch);
  io("content", x.content);
  io("parameters", x.parameters);
  io("bytes", x.bytes);
  io("chunk_bytes", x.chunk_bytes, {1, body_bytes_max});
}

void fields(of<get_state_chunk>, auto& io, auto& x) {
  io("content", x.content);
  io("index", x.index);
}

void fields(of<state_chunk>, auto& io, auto& x) {
  io("index", x.index);
}

// -- about calls and the link --------------------------------------------------------------------

template <class Io>
void fields(of<refusal>, Io& io, auto& x) {
  io("code", x.why.code);
  if constexpr (Io::reads) {
    io("detail", x.why.detail, {0, detail_bytes_max});
    if (x.why.code == ec::none)
      x.why.code = ec::internal;
  } else {
    io("detail", x.why.detail.substr(0, detail_bytes_max));
  }
}

template <one_of<ping, pong> T>
void fields(of<T>, auto& io, auto& x) {
  io("nonce", x.nonce);
}

} // namespace waggle::wire
