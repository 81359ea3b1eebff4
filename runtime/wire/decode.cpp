// This file is long: it has one short reader for each message, and the table that calls them.

#include <google/protobuf/io/coded_stream.h>

#include "runtime/wire/convert.hpp"
#include "runtime/wire/fields.hpp"

namespace waggle::wire {

namespace {

using proto::Header;

failure violation(const char* what) {
  return {ec::protocol_violation, what};
}

failure check(bool valid, const char* what) {
  return valid ? failure{} : violation(what);
}

/// Reads what messages about a round begin with: its id, and the number of the view if they are
/// about one.
template <class Proto, class Message>
bool begin(const Proto& from, Message& out) {
  if constexpr (requires { out.view = from.view(); })
    out.view = from.view();
  return read_id(from.round(), out.round);
}

// Each reader fills `out` and returns the error, ec::none if there is none.

failure read(const proto::DhtPing&, dht_ping&) {
  return {};
}

failure read(const proto::DhtFind& from, dht_find& out) {
  if (static_cast<std::size_t>(from.keys_size()) > keys_per_find_max)
    return {ec::oversize, "dht_find: too many keys"};
  if (from.keys_size() == 0)
    return violation("dht_find: no key");
  for (const auto& raw : from.keys())
    if (!read_id(raw, out.keys.emplace_back()))
      return violation("dht_find: key");
  out.nodes_only = from.nodes_only();
  return {};
}

failure read(const proto::DhtStore& from, dht_store& out) {
  if (static_cast<std::size_t>(from.records_size()) > records_per_message_max)
    return {ec::oversize, "dht_store: too many records"};
  for (const auto& entry : from.records())
    if (!read_record(entry, out.records.emplace_back()))
      return violation("dht_store: record");
  return {};
}

failure read(const proto::JoinGroup& from, join_group& out) {
  if (from.prefix().size() > prefix_bytes_max || from.group_key().size() > group_key_bytes_max)
    return {ec::oversize, "join_group: key"};
  out.prefix = from.prefix();
  out.group_key = from.group_key();
  out.epoch = epoch_id{from.epoch()};
  out.expiration = swarm_time_from(from.expiration());
  if (from.gather().size() > gather_bytes_max)
    return {ec::oversize, "join_group: gather"};
  out.gather = from.gather();
  if (from.has_bandwidth()) {
    out.bandwidth = from.bandwidth();
    if (!std::isfinite(*out.bandwidth))
      return {ec::non_finite, "join_group: bandwidth"};
  }
  out.bandwidth_declared = from.bandwidth_declared();
  if (!read_id(from.schema(), out.schema) || !read_mode(from.mode(), out.mode)
      || (out.bandwidth && *out.bandwidth < 0) || !from.has_self()
      || !read_peer(from.self(), out.self))
    return violation("join_group");
  return {};
}

failure read(const proto::OpenState& from, open_state& out) {
  out.epoch_min = epoch_id{from.epoch_min()};
  return check(read_id(from.branch(), out.branch), "open_state");
}

failure read(const proto::EnterGroup& from, enter_group& out) {
  if (from.prefix().size() > prefix_bytes_max)
    return {ec::oversize, "enter_group: prefix"};
  out.prefix = from.prefix();
  if (from.has_bandwidth()) {
    out.bandwidth = from.bandwidth();
    if (!std::isfinite(*out.bandwidth))
      return {ec::non_finite, "enter_group: bandwidth"};
  }
  out.bandwidth_declared = from.bandwidth_declared();
  return check(read_id(from.schema(), out.schema) && read_mode(from.mode(), out.mode)
                 && read_id(from.branch(), out.branch) && (!out.bandwidth || *out.bandwidth >= 0),
               "enter_group");
}

failure read(const proto::GetStateChunk& from, get_state_chunk& out) {
  out.index = from.index();
  return check(read_id(from.content(), out.content), "get_state_chunk");
}

failure read(const proto::DialBack& from, dial_back& out) {
  if (from.ports().empty() || static_cast<std::size_t>(from.ports_size()) > addresses_max)
    return violation("dial_back: number of ports");
  for (auto port : from.ports()) {
    if (port == 0 || port > 65'535)
      return violation("dial_back: port");
    out.ports.push_back(static_cast<std::uint16_t>(port));
  }
  return {};
}

failure read(const proto::DialledBack& from, dialled_back& out) {
  out.outcome = ec_from_wire(from.outcome());
  return {};
}

failure read(const proto::DhtPong& from, dht_pong& out) {
  out.now = swarm_time_from(from.now());
  return {};
}

failure read(const proto::DhtFound& from, dht_found& out) {
  if (static_cast<std::size_t>(from.answers_size()) > keys_per_find_max)
    return {ec::oversize, "dht_found: too many answers"};
  for (const auto& answer : from.answers()) {
    if (static_cast<std::size_t>(answer.records_size()) > records_per_message_max
        || static_cast<std::size_t>(answer.nearest_size()) > nearest_per_key_max)
      return {ec::oversize, "dht_found: too many entries"};
    auto& to = out.answers.emplace_back();
    for (const auto& entry : answer.records())
      if (!read_record(entry, to.records.emplace_back()))
        return violation("dht_found: record");
    for (const auto& peer : answer.nearest())
      if (!read_peer(peer, to.nearest.emplace_back()))
        return violation("dht_found: peer");
  }
  return {};
}

failure read(const proto::DhtStored& from, dht_stored& out) {
  if (static_cast<std::size_t>(from.outcomes_size()) > records_per_message_max)
    return {ec::oversize, "dht_stored: too many outcomes"};
  for (auto outcome : from.outcomes())
    out.outcomes.push_back(ec_from_wire(outcome));
  return {};
}

failure read(const proto::JoinReply& from, join_reply& out) {
  out.code = ec_from_wire(from.code());
  if (from.has_suggested() && !read_peer(from.suggested(), out.suggested.emplace_back()))
    return violation("join_reply: suggested leader");
  return {};
}

failure read(const proto::StateHeader& from, state_header& out) {
  out.epoch = epoch_id{from.epoch()};
  out.bytes = from.bytes();
  out.chunk_bytes = from.chunk_bytes();
  if (!read_id(from.content(), out.content) || !read_id(from.parameters(), out.parameters)
      || out.chunk_bytes == 0 || out.chunk_bytes > body_bytes_max)
    return violation("state_header");
  return {};
}

failure read(const proto::StateChunk& from, state_chunk& out) {
  out.index = from.index();
  return {};
}

failure read(const proto::Goodbye&, goodbye&) {
  return {};
}

failure read(const proto::BeginGroup& from, begin_group& out) {
  return check(read_plan(from.plan(), out.plan), "begin_group: plan");
}

failure read(const proto::DisbandGroup& from, disband_group& out) {
  if (from.prefix().size() > prefix_bytes_max)
    return {ec::oversize, "disband_group: prefix"};
  out.prefix = from.prefix();
  if (from.has_suggested() && !read_peer(from.suggested(), out.suggested.emplace_back()))
    return violation("disband_group: suggested leader");
  return {};
}

failure read(const proto::LeaveGroup& from, leave_group& out) {
  if (from.prefix().size() > prefix_bytes_max)
    return {ec::oversize, "leave_group: prefix"};
  out.prefix = from.prefix();
  return {};
}

failure read(const proto::ProgressPush& from, progress_push& out) {
  return check(read_record(from.entry(), out.entry), "progress_push: record");
}

failure read(const proto::ProgressNote& from, progress_note& out) {
  out.epoch = epoch_id{from.epoch()};
  out.samples = from.samples();
  out.samples_per_second = from.samples_per_second();
  if (!std::isfinite(out.samples_per_second))
    return {ec::non_finite, "progress_note: samples_per_second"};
  return check(read_id(from.branch(), out.branch) && out.samples_per_second >= 0, "progress_note");
}

failure read(const proto::NextPlan& from, next_plan& out) {
  out.members_max = from.members_max();
  return check(read_id(from.replaces(), out.replaces) && read_plan(from.plan(), out.plan)
                 && read_id(from.branch(), out.branch)
                 && (from.schema().empty() || read_id(from.schema(), out.schema))
                 && out.members_max <= round_members_max
                 && read_codecs(from.second_round(), out.second_round),
               "next_plan");
}

failure read(const proto::CallRound& from, call_round& out) {
  return check(read_id(from.upcoming(), out.upcoming), "call_round");
}

failure read(const proto::Part& from, part& out) {
  if (!begin(from, out) || from.kind() > 3 || from.index() >= parts_max || from.count() == 0
      || from.count() > part_elements_max || from.offset() > plan_elements_max
      || from.member() >= round_members_max)
    return violation("part");
  if (!std::isfinite(from.weight()) || from.weight() < 0)
    return {ec::bad_weight, "part: weight"};
  out.kind = static_cast<part_kind>(from.kind());
  out.index = from.index();
  out.offset = from.offset();
  out.count = from.count();
  out.weight = from.weight();
  out.contributors = from.contributors();
  out.member = from.member();
  if (static_cast<std::size_t>(from.weights_size()) > round_members_max)
    return {ec::oversize, "part: weights"};
  out.weights.assign(from.weights().begin(), from.weights().end());
  if (!std::ranges::all_of(out.weights, [](double w) { return std::isfinite(w) && w >= 0; }))
    return {ec::bad_weight, "part: weights"};
  return {};
}

/// Empty: zero.
template <class Id>
bool read_optional_id(const std::string& from, Id& out) {
  return from.empty() || read_id(from, out);
}

failure read(const proto::RoundPropose& from, round_propose& out) {
  if (static_cast<std::size_t>(from.promises_size()) > round_members_max)
    return {ec::oversize, "round_propose: promises"};
  if (!begin(from, out) || !read_view(from.view(), out.view))
    return violation("round_propose");
  for (const auto& shown : from.promises()) {
    takeover_promise promise;
    promise.promised = out.view.number;
    promise.knows_view = true;
    promise.prepared = shown.prepared();
    bool ascending = out.promises.empty() || out.promises.rbegin()->first < shown.member();
    if (shown.member() >= round_members_max || !ascending || !read_view(shown.view(), promise.view)
        || !read_optional_id(shown.value(), promise.value) || !read_id(shown.by(), promise.by))
      return violation("round_propose: promise");
    out.promises.emplace(shown.member(), promise);
  }
  return {};
}

failure read(const proto::RoundPrepared& from, round_prepared& out) {
  return check(begin(from, out) && read_id(from.result(), out.result) && read_id(from.by(), out.by),
               "round_prepared");
}

failure read(const proto::RoundKeyShare& from, round_key_share& out) {
  out.member = from.member();
  return check(begin(from, out) && read_id(from.share(), out.share)
                 && (from.pledges().empty() || read_id(from.pledges(), out.pledges))
                 && out.member < round_members_max,
               "round_key_share");
}

failure read(const proto::RoundPledge& from, round_pledge& out) {
  out.contributes = from.contributes();
  out.member = from.member();
  return check(begin(from, out) && read_id(from.commitment(), out.commitment)
                 && out.member < round_members_max,
               "round_pledge");
}

failure read(const proto::RoundPledgeDigests& from, round_pledge_digests& out) {
  if (from.pledges().size() > round_members_max * digest::size)
    return {ec::oversize, "round_pledge_digests: pledges"};
  return check(begin(from, out) && read_ids(from.pledges(), out.pledges) && !out.pledges.empty(),
               "round_pledge_digests");
}

failure read(const proto::RoundChecked& from, round_checked& out) {
  return check(begin(from, out), "round_checked");
}

failure read(const proto::RoundChallenge& from, round_challenge& out) {
  out.part = from.part();
  return check(begin(from, out) && out.part < parts_max, "round_challenge");
}

failure read(const proto::RoundDigests& from, round_digests& out) {
  if (from.groups().size() > result_groups_max * digest::size)
    return {ec::oversize, "round_digests: groups"};
  return check(begin(from, out) && read_ids(from.groups(), out.groups) && !out.groups.empty(),
               "round_digests");
}

failure read(const proto::RoundSuspect& from, round_suspect& out) {
  out.member = from.member();
  out.reason = ec_from_wire(from.reason());
  return check(begin(from, out) && out.member < round_members_max, "round_suspect");
}

failure read(const proto::RoundCommit& from, round_commit& out) {
  if (from.proof().size() > round_members_max * signature::size)
    return {ec::oversize, "round_commit: proof"};
  return check(begin(from, out) && read_view(from.view(), out.view)
                 && read_ids(from.proof(), out.proof),
               "round_commit");
}

failure read(const proto::RoundAbort& from, round_abort& out) {
  out.reason = ec_from_wire(from.reason());
  return check(begin(from, out), "round_abort");
}

failure read(const proto::RoundTakeover& from, round_takeover& out) {
  out.number = from.number();
  return check(begin(from, out), "round_takeover");
}

failure read(const proto::RoundPromise& from, round_promise& out) {
  out.promised = from.promised();
  out.knows_view = from.knows_view();
  out.prepared = from.prepared();
  out.committed = from.committed();
  if (from.proof().size() > round_members_max * signature::size)
    return {ec::oversize, "round_promise: proof"};
  if (!begin(from, out) || (out.knows_view && !read_view(from.view(), out.view))
      || ((out.prepared || out.committed) && !out.knows_view) || !read_ids(from.proof(), out.proof)
      || !read_optional_id(from.value(), out.value) || !read_optional_id(from.by(), out.by))
    return violation("round_promise");
  return {};
}

failure read(const proto::BandwidthReport& from, bandwidth_report& out) {
  if (from.has_bandwidth()) {
    out.bandwidth = from.bandwidth();
    if (!std::isfinite(*out.bandwidth))
      return {ec::non_finite, "bandwidth_report: bandwidth"};
  }
  return check(begin(from, out) && (!out.bandwidth || *out.bandwidth > 0), "bandwidth_report");
}

result<message> message_of(const Header& header, request what) {
  return message{call{header.call(), header.deadline_ms(), std::move(what)}};
}
result<message> message_of(const Header& header, response what) {
  return message{answer{header.call(), std::move(what)}};
}
result<message> message_of(const Header& /*header*/, event what) {
  return message{std::move(what)};
}

/// A message of the kind `Struct`, of which `From` is the part of the header.
template <class Struct, auto From>
result<message> as(const Header& header) {
  Struct out;
  if (auto why = read((header.*From)(), out); why.code != ec::none)
    return why;
  return message_of(header, std::move(out));
}

result<message> read_refusal(const Header& header) {
  const auto& from = header.refusal();
  if (from.detail().size() > detail_bytes_max)
    return failure{ec::oversize, "refusal: detail"};
  auto code = ec_from_wire(from.code());
  return message{refusal{header.call(), {code == ec::none ? ec::internal : code, from.detail()}}};
}

struct content_row {
  Header::ContentCase kind;
  result<message> (*read)(const Header& header);
};
constexpr content_row contents[] = {
  {Header::kDhtPing, as<dht_ping, &Header::dht_ping>},
  {Header::kDhtFind, as<dht_find, &Header::dht_find>},
  {Header::kDhtStore, as<dht_store, &Header::dht_store>},
  {Header::kJoinGroup, as<join_group, &Header::join_group>},
  {Header::kOpenState, as<open_state, &Header::open_state>},
  {Header::kGetStateChunk, as<get_state_chunk, &Header::get_state_chunk>},
  {Header::kEnterGroup, as<enter_group, &Header::enter_group>},
  {Header::kDialBack, as<dial_back, &Header::dial_back>},
  {Header::kDhtPong, as<dht_pong, &Header::dht_pong>},
  {Header::kDhtFound, as<dht_found, &Header::dht_found>},
  {Header::kDhtStored, as<dht_stored, &Header::dht_stored>},
  {Header::kJoinReply, as<join_reply, &Header::join_reply>},
  {Header::kStateHeader, as<state_header, &Header::state_header>},
  {Header::kStateChunk, as<state_chunk, &Header::state_chunk>},
  {Header::kDialledBack, as<dialled_back, &Header::dialled_back>},
  {Header::kGoodbye, as<goodbye, &Header::goodbye>},
  {Header::kBeginGroup, as<begin_group, &Header::begin_group>},
  {Header::kDisbandGroup, as<disband_group, &Header::disband_group>},
  {Header::kLeaveGroup, as<leave_group, &Header::leave_group>},
  {Header::kProgressPush, as<progress_push, &Header::progress_push>},
  {Header::kPart, as<part, &Header::part>},
  {Header::kRoundPropose, as<round_propose, &Header::round_propose>},
  {Header::kRoundPrepared, as<round_prepared, &Header::round_prepared>},
  {Header::kRoundSuspect, as<round_suspect, &Header::round_suspect>},
  {Header::kRoundCommit, as<round_commit, &Header::round_commit>},
  {Header::kRoundAbort, as<round_abort, &Header::round_abort>},
  {Header::kRoundTakeover, as<round_takeover, &Header::round_takeover>},
  {Header::kRoundPromise, as<round_promise, &Header::round_promise>},
  {Header::kRoundKeyShare, as<round_key_share, &Header::round_key_share>},
  {Header::kRoundDigests, as<round_digests, &Header::round_digests>},
  {Header::kRoundPledge, as<round_pledge, &Header::round_pledge>},
  {Header::kRoundPledgeDigests, as<round_pledge_digests, &Header::round_pledge_digests>},
  {Header::kRoundChecked, as<round_checked, &Header::round_checked>},
  {Header::kRoundChallenge, as<round_challenge, &Header::round_challenge>},
  {Header::kBandwidthReport, as<bandwidth_report, &Header::bandwidth_report>},
  {Header::kNextPlan, as<next_plan, &Header::next_plan>},
  {Header::kCallRound, as<call_round, &Header::call_round>},
  {Header::kProgressNote, as<progress_note, &Header::progress_note>},
  {Header::kRefusal, read_refusal},
  {Header::kCancel,
   [](const Header& header) -> result<message> { return message{cancel{header.call()}}; }},
  {Header::kPing,
   [](const Header& header) -> result<message> { return message{ping{header.ping().nonce()}}; }},
  {Header::kPong,
   [](const Header& header) -> result<message> { return message{pong{header.pong().nonce()}}; }},
};
static_assert(
  std::size(contents)
  == std::variant_size_v<request> + std::variant_size_v<response> + std::variant_size_v<event> + 4);

result<message> read_content(const Header& header) {
  for (const auto& row : contents)
    if (row.kind == header.content_case())
      return row.read(header);
  return failure{ec::protocol_violation, "a message of a kind that this version does not know"};
}

bool has_body(const message& what) {
  if (const auto* e = std::get_if<event>(&what)) {
    const auto* pledge = std::get_if<round_pledge>(e);
    return std::holds_alternative<part>(*e) || (pledge != nullptr && pledge->contributes);
  }
  if (const auto* a = std::get_if<answer>(&what))
    return std::holds_alternative<state_chunk>(a->what);
  return false;
}

} // namespace

result<message> decode(std::string_view header, std::size_t body_bytes) {
  if (header.size() > header_bytes_max || body_bytes > body_bytes_max)
    return failure{ec::oversize, "frame"};
  google::protobuf::io::CodedInputStream in{reinterpret_cast<const std::uint8_t*>(header.data()),
                                            static_cast<int>(header.size())};
  in.SetRecursionLimit(8);
  Header parsed;
  if (!parsed.ParseFromCodedStream(&in) || !in.ConsumedEntireMessage())
    return failure{ec::malformed, "a header that does not parse"};
  auto out = read_content(parsed);
  if (out.ok() && has_body(*out) != (body_bytes > 0))
    return failure{ec::protocol_violation,
                   body_bytes > 0 ? "a message of this kind has no body" : "the body is missing"};
  return out;
}

} // namespace waggle::wire
