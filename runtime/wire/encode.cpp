#include "runtime/wire/convert.hpp"
#include "runtime/wire/fields.hpp"

namespace waggle::wire {

namespace {

using proto::Header;

/// Writes what messages about a round begin with: its id, and the number of the view if they are
/// about one. Returns `to`.
template <class Message, class Proto>
Proto& begin(const Message& x, Proto* to) {
  to->set_round(write_id(x.round));
  if constexpr (requires { to->set_view(x.view); })
    to->set_view(x.view);
  return *to;
}

// -- calls ---------------------------------------------------------------------------------------

void write(const dht_ping&, Header& out) {
  out.mutable_dht_ping();
}

void write(const dht_find& x, Header& out) {
  auto& to = *out.mutable_dht_find();
  for (const auto& key : x.keys)
    to.add_keys(write_id(key));
  to.set_nodes_only(x.nodes_only);
}

void write(const dht_store& x, Header& out) {
  auto& to = *out.mutable_dht_store();
  for (const auto& entry : x.records)
    write_record(entry, *to.add_records());
}

void write(const join_group& x, Header& out) {
  auto& to = *out.mutable_join_group();
  to.set_prefix(x.prefix);
  to.set_group_key(x.group_key);
  to.set_schema(write_id(x.schema));
  to.set_epoch(x.epoch.value());
  to.set_expiration(to_nanoseconds(x.expiration));
  to.set_mode(static_cast<std::uint32_t>(x.mode));
  if (x.bandwidth)
    to.set_bandwidth(*x.bandwidth);
  to.set_bandwidth_declared(x.bandwidth_declared);
  to.set_gather(x.gather);
  write_peer(x.self, *to.mutable_self());
}

void write(const open_state& x, Header& out) {
  auto& to = *out.mutable_open_state();
  to.set_branch(write_id(x.branch));
  to.set_epoch_min(x.epoch_min.value());
}

void write(const enter_group& x, Header& out) {
  auto& to = *out.mutable_enter_group();
  to.set_prefix(x.prefix);
  to.set_schema(write_id(x.schema));
  to.set_mode(static_cast<std::uint32_t>(x.mode));
  if (x.bandwidth)
    to.set_bandwidth(*x.bandwidth);
  to.set_bandwidth_declared(x.bandwidth_declared);
  to.set_branch(write_id(x.branch));
}

void write(const get_state_chunk& x, Header& out) {
  auto& to = *out.mutable_get_state_chunk();
  to.set_content(write_id(x.content));
  to.set_index(x.index);
}

void write(const dial_back& x, Header& out) {
  auto& to = *out.mutable_dial_back();
  for (auto port : x.ports)
    to.add_ports(port);
}

// -- answers -------------------------------------------------------------------------------------

void write(const dht_pong& x, Header& out) {
  out.mutable_dht_pong()->set_now(to_nanoseconds(x.now));
}

void write(const dialled_back& x, Header& out) {
  out.mutable_dialled_back()->set_outcome(static_cast<std::uint32_t>(x.outcome));
}

void write(const dht_found& x, Header& out) {
  auto& to = *out.mutable_dht_found();
  for (const auto& answer : x.answers) {
    auto& a = *to.add_answers();
    for (const auto& entry : answer.records)
      write_record(entry, *a.add_records());
    for (const auto& peer : answer.nearest)
      write_peer(peer, *a.add_nearest());
  }
}

void write(const dht_stored& x, Header& out) {
  auto& to = *out.mutable_dht_stored();
  for (auto outcome : x.outcomes)
    to.add_outcomes(static_cast<std::uint32_t>(outcome));
}

void write(const join_reply& x, Header& out) {
  auto& to = *out.mutable_join_reply();
  to.set_code(static_cast<std::uint32_t>(x.code));
  if (!x.suggested.empty())
    write_peer(x.suggested.front(), *to.mutable_suggested());
}

void write(const state_header& x, Header& out) {
  auto& to = *out.mutable_state_header();
  to.set_epoch(x.epoch.value());
  to.set_content(write_id(x.content));
  to.set_parameters(write_id(x.parameters));
  to.set_bytes(x.bytes);
  to.set_chunk_bytes(x.chunk_bytes);
}

void write(const state_chunk& x, Header& out) {
  out.mutable_state_chunk()->set_index(x.index);
}

// -- events --------------------------------------------------------------------------------------

void write(const goodbye&, Header& out) {
  out.mutable_goodbye();
}

void write(const begin_group& x, Header& out) {
  write_plan(x.plan, *out.mutable_begin_group()->mutable_plan());
}

void write(const disband_group& x, Header& out) {
  auto& to = *out.mutable_disband_group();
  to.set_prefix(x.prefix);
  if (!x.suggested.empty())
    write_peer(x.suggested.front(), *to.mutable_suggested());
}

void write(const leave_group& x, Header& out) {
  out.mutable_leave_group()->set_prefix(x.prefix);
}

void write(const progress_push& x, Header& out) {
  write_record(x.entry, *out.mutable_progress_push()->mutable_entry());
}

void write(const progress_note& x, Header& out) {
  auto& to = *out.mutable_progress_note();
  to.set_epoch(x.epoch.value());
  to.set_branch(write_id(x.branch));
  to.set_samples(x.samples);
  to.set_samples_per_second(x.samples_per_second);
}

void write(const next_plan& x, Header& out) {
  auto& to = *out.mutable_next_plan();
  to.set_replaces(write_id(x.replaces));
  write_plan(x.plan, *to.mutable_plan());
  to.set_branch(write_id(x.branch));
  if (!x.schema.is_zero())
    to.set_schema(write_id(x.schema));
  to.set_members_max(x.members_max);
  write_codecs(x.second_round, *to.mutable_second_round());
}

void write(const call_round& x, Header& out) {
  out.mutable_call_round()->set_upcoming(write_id(x.upcoming));
}

void write(const part& x, Header& out) {
  auto& to = begin(x, out.mutable_part());
  to.set_kind(static_cast<std::uint32_t>(x.kind));
  to.set_index(x.index);
  to.set_offset(x.offset);
  to.set_count(x.count);
  to.set_weight(x.weight);
  to.set_contributors(x.contributors);
  for (auto weight : x.weights)
    to.add_weights(weight);
  to.set_member(x.member);
}

void write(const round_propose& x, Header& out) {
  auto& to = begin(x, out.mutable_round_propose());
  write_view(x.view, *to.mutable_view());
  for (const auto& [member, promise] : x.promises) {
    auto& shown = *to.add_promises();
    shown.set_member(static_cast<std::uint32_t>(member));
    write_view(promise.view, *shown.mutable_view());
    shown.set_prepared(promise.prepared);
    if (!promise.value.is_zero())
      shown.set_value(write_id(promise.value));
    shown.set_by(write_id(promise.by));
  }
}

void write(const round_prepared& x, Header& out) {
  auto& to = begin(x, out.mutable_round_prepared());
  to.set_result(write_id(x.result));
  to.set_by(write_id(x.by));
}

void write(const round_key_share& x, Header& out) {
  auto& to = begin(x, out.mutable_round_key_share());
  to.set_member(x.member);
  to.set_share(write_id(x.share));
  if (!x.pledges.is_zero())
    to.set_pledges(write_id(x.pledges));
}

void write(const round_pledge& x, Header& out) {
  auto& to = begin(x, out.mutable_round_pledge());
  to.set_member(x.member);
  to.set_commitment(write_id(x.commitment));
  to.set_contributes(x.contributes);
}

void write(const round_pledge_digests& x, Header& out) {
  auto& to = begin(x, out.mutable_round_pledge_digests());
  to.set_pledges(write_ids(x.pledges));
}

void write(const round_checked& x, Header& out) {
  begin(x, out.mutable_round_checked());
}

void write(const round_challenge& x, Header& out) {
  auto& to = begin(x, out.mutable_round_challenge());
  to.set_part(x.part);
}

void write(const round_digests& x, Header& out) {
  auto& to = begin(x, out.mutable_round_digests());
  to.set_groups(write_ids(x.groups));
}

void write(const round_suspect& x, Header& out) {
  auto& to = begin(x, out.mutable_round_suspect());
  to.set_member(x.member);
  to.set_reason(static_cast<std::uint32_t>(x.reason));
}

void write(const round_commit& x, Header& out) {
  auto& to = begin(x, out.mutable_round_commit());
  write_view(x.view, *to.mutable_view());
  to.set_proof(write_ids(x.proof));
}

void write(const round_abort& x, Header& out) {
  auto& to = begin(x, out.mutable_round_abort());
  to.set_reason(static_cast<std::uint32_t>(x.reason));
}

void write(const round_takeover& x, Header& out) {
  auto& to = begin(x, out.mutable_round_takeover());
  to.set_number(x.number);
}

void write(const round_promise& x, Header& out) {
  auto& to = begin(x, out.mutable_round_promise());
  to.set_promised(x.promised);
  to.set_knows_view(x.knows_view);
  if (x.knows_view)
    write_view(x.view, *to.mutable_view());
  to.set_prepared(x.prepared);
  to.set_committed(x.committed);
  to.set_proof(write_ids(x.proof));
  if (!x.value.is_zero())
    to.set_value(write_id(x.value));
  if (x.by != signature{})
    to.set_by(write_id(x.by));
}

void write(const bandwidth_report& x, Header& out) {
  auto& to = begin(x, out.mutable_bandwidth_report());
  if (x.bandwidth)
    to.set_bandwidth(*x.bandwidth);
}

// -- the envelope --------------------------------------------------------------------------------

struct writer {
  Header& out;

  void operator()(const call& x) {
    out.set_call(x.id);
    out.set_deadline_ms(x.deadline_ms);
    std::visit([this](const auto& what) { write(what, out); }, x.what);
  }
  void operator()(const answer& x) {
    out.set_call(x.id);
    std::visit([this](const auto& what) { write(what, out); }, x.what);
  }
  void operator()(const refusal& x) {
    out.set_call(x.id);
    auto& to = *out.mutable_refusal();
    to.set_code(static_cast<std::uint32_t>(x.why.code));
    to.set_detail(x.why.detail.substr(0, detail_bytes_max));
  }
  void operator()(const cancel& x) {
    out.set_call(x.id);
    out.mutable_cancel();
  }
  void operator()(const ping& x) { out.mutable_ping()->set_nonce(x.nonce); }
  void operator()(const pong& x) { out.mutable_pong()->set_nonce(x.nonce); }
  void operator()(const event& x) {
    std::visit([this](const auto& what) { write(what, out); }, x);
  }
};

} // namespace

std::string encode(const message& what) {
  Header header;
  std::visit(writer{header}, what);
  return header.SerializeAsString();
}

} // namespace waggle::wire
