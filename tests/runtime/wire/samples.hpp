#pragma once

#include <vector>

#include "runtime/wire/convert.hpp"
#include "tests/runtime/averaging/plans.hpp"

namespace waggle::wire {

inline peer_record sample_peer(std::uint64_t seed) {
  auto who = identity::from_seed(seed);
  return {who->id(), who->key(), {{"10.1.2.3", 7700}, {"::1", 1}}, false};
}

inline record sample_record() {
  record entry{.kind = record_kind::progress,
               .name = "demo_progress",
               .value = std::string{"\0\xff value", 8},
               .expiration = swarm_time_from(1'700'000'000'123'456'789),
               .sequence = 42};
  sign_record("demo", *identity::from_seed(5), entry);
  return entry;
}

inline digest sample_digest(int fill) {
  digest out;
  out.bytes.fill(static_cast<std::byte>(fill));
  return out;
}

inline signature sample_signature(int fill) {
  signature out;
  out.bytes.fill(static_cast<std::byte>(fill));
  return out;
}

struct sample {
  const char* name;
  message what;
  std::size_t body_bytes = 0;
};

/// One sample of every message, with every field set.
inline std::vector<sample> samples() {
  round_id round;
  round.bytes.fill(std::byte{9});
  round_view view{70'000, 0x8000'0000'0000'0001U, 0xffff'ffff'ffff'ffffU, true, sample_digest(7)};
  record plain{.name = "n", .subkey = "s", .value = "v", .tombstone = true};
  std::vector<sample> out;
  auto call_of = [&](const char* name, request what) {
    out.push_back({name, call{7, 1'500, std::move(what)}});
  };
  auto answer_of = [&](const char* name, response what, std::size_t body = 0) {
    out.push_back({name, answer{0xffff'ffff'ffff'ffffU, std::move(what)}, body});
  };
  auto event_of = [&](const char* name, event what, std::size_t body = 0) {
    out.push_back({name, std::move(what), body});
  };
  call_of("dht_ping", dht_ping{});
  call_of("dht_find", dht_find{{dht_id{sample_digest(1).bytes}, dht_id{}}, true, {7, ~0ULL}});
  call_of("dht_store", dht_store{{sample_record(), plain}});
  call_of("join_group", join_group{"demo_grad", "demo_grad.0b01", sample_digest(2), epoch_id{77},
                                   swarm_time_from(123), member_mode::auxiliary, 1.5e6,
                                   sample_peer(1), "{}", true});
  call_of("open_state", open_state{sample_digest(6), epoch_id{8}});
  call_of("open_state_left", open_state{sample_digest(6), epoch_id{8}, sample_peer(2).id, true});
  call_of("get_state_chunk", get_state_chunk{sample_digest(3), 12});
  call_of("enter_group", enter_group{"demo_grad", sample_digest(2), member_mode::client, 2e6, true,
                                     sample_digest(9)});
  call_of("dial_back", dial_back{{21'000, 65'535}});
  answer_of("dialled_back", dialled_back{ec::timeout});
  call_of("introduce", introduce{sample_peer(4).id});
  answer_of("introduced", introduced{ec::rate_limited});
  answer_of("dht_pong", dht_pong{swarm_time_from(-5)});
  answer_of("dht_found",
            dht_found{{{{sample_record(), plain}, {sample_peer(1), sample_peer(2)}}, {}}});
  answer_of("dht_stored", dht_stored{{ec::none, ec::stale_record, ec::overloaded}});
  answer_of("join_reply", join_reply{ec::not_a_leader, {sample_peer(3)}});
  answer_of("state_header",
            state_header{epoch_id{3}, sample_digest(4), sample_digest(5), 1ULL << 40U, 65'536});
  answer_of("state_chunk", state_chunk{4}, 65'536);
  event_of("goodbye", goodbye{});
  event_of("begin_group", begin_group{plan_for(4)});
  auto one_host = plan_for(3);
  one_host.one_host = true;
  event_of("begin_group_on_one_host", begin_group{one_host});
  event_of("disband_group", disband_group{"demo_grad", {sample_peer(4)}});
  event_of("leave_group", leave_group{"demo_grad"});
  event_of("progress_push", progress_push{sample_record()});
  event_of(
    "part",
    part{
      round, 3, part_kind::result, 5, 1'000, 250, 2.5, 0x8000'0000'0000'000fU, {0.5, 2, 0, 0, 0}},
    1'000);
  event_of("round_propose", round_propose{round, view});
  takeover_promise told{view.number,        true, view, true, false, sample_digest(8),
                        sample_signature(1)};
  takeover_promise nothing{view.number, true, {3, 15, 7, false, {}}, false, false, {}, {}};
  nothing.by = sample_signature(2);
  event_of("round_propose", round_propose{round, view, {{0, told}, {63, nothing}}});
  event_of("round_prepared", round_prepared{round, 9, sample_digest(7), sample_signature(1)});
  event_of("round_suspect", round_suspect{round, 9, 63, ec::stalled});
  event_of("round_commit", round_commit{round, view, {sample_signature(1), sample_signature(2)}});
  event_of("round_abort", round_abort{round, ec::lost_quorum});
  event_of("round_takeover", round_takeover{round, 99});
  event_of("part", part{round, 3, part_kind::evidence, 5, 1'000, 250, 2.5, 7, {}, 63}, 1'000);
  event_of("round_key_share", round_key_share{round, 3, 63, sample_digest(7)});
  event_of("round_key_share", round_key_share{round, 3, 63, sample_digest(7), sample_digest(8)});
  event_of("round_pledge", round_pledge{round, 3, 63, sample_digest(7), true}, 64);
  event_of("round_pledge", round_pledge{round, 3, 63, sample_digest(7), false});
  event_of("round_pledge_digests",
           round_pledge_digests{round, 3, {sample_digest(7), sample_digest(8)}});
  event_of("round_checked", round_checked{round, 3});
  event_of("round_challenge", round_challenge{round, 3, 77});
  event_of("round_digests", round_digests{round, 3, {sample_digest(7), sample_digest(8)}});
  event_of(
    "round_promise",
    round_promise{{99, true, view, true, true}, round, {sample_signature(3), sample_signature(4)}});
  event_of(
    "round_promise",
    round_promise{{99, true, view, true, false, sample_digest(8), sample_signature(3)}, round});
  event_of("bandwidth_report", bandwidth_report{round, 3e6});
  event_of("bandwidth_report", bandwidth_report{round, {}, true});
  event_of("next_plan", next_plan{round, plan_for(4), sample_digest(9), {}, 0});
  event_of("next_plan", next_plan{round, plan_for(4), sample_digest(9), sample_digest(8), 16});
  event_of("next_plan",
           next_plan{round,
                     plan_for(4),
                     sample_digest(9),
                     {},
                     0,
                     {{{{7, codec_id::none}, {1'000, codec_id::float16}}}, {{{9, codec_id::none}}}},
                     true});
  event_of("call_round", call_round{round});
  event_of("reach_note", reach_note{sample_peer(5)});
  event_of("punch_note", punch_note{sample_peer(4).id, {"192.0.2.7", 40'001}, 65});
  event_of("members_note", members_note{std::string(member_list::bytes_min, 'm')});
  event_of("progress_note", progress_note{epoch_id{5}, sample_digest(7), 96, 123.5});
  out.push_back({"refusal", refusal{8, {ec::overloaded, "later, please"}}});
  out.push_back({"cancel", cancel{8}});
  out.push_back({"ping", ping{1}});
  out.push_back({"pong", pong{0xffff'ffff'ffff'ffffU}});
  return out;
}

} // namespace waggle::wire
