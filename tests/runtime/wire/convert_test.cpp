#include <cmath>
#include <limits>

#include <gtest/gtest.h>

#include "runtime/core/random.hpp"
#include "runtime/wire/message_fields.hpp"
#include "tests/runtime/wire/samples.hpp"
#include "waggle_wire.pb.h"

namespace waggle::wire {
namespace {

using proto::Header;

ec code_of(const Header& header, std::size_t body = 0) {
  auto out = decode(header.SerializeAsString(), body);
  return out.ok() ? ec::none : out.error().code;
}

ec code_of(const message& what, std::size_t body = 0) {
  auto out = decode(encode(what), body);
  return out.ok() ? ec::none : out.error().code;
}

template <class Event>
ec event_code(Event e, std::size_t body = 0) {
  return code_of(message{event{std::move(e)}}, body);
}

TEST(WireConvert, EveryMessageComesBackAsItWasSent) {
  for (const auto& s : samples()) {
    auto bytes = encode(s.what);
    auto back = decode(bytes, s.body_bytes);
    ASSERT_TRUE(back.ok()) << s.name << ": " << to_string(back.error());
    EXPECT_EQ(back->index(), s.what.index()) << s.name;
    EXPECT_EQ(encode(*back), bytes)
      << s.name; // protobuf without maps: the same struct, the same bytes
  }
}

TEST(WireConvert, FieldsKeepTheirValues) {
  round_id round;
  round.bytes.fill(std::byte{9});
  part sent{round, 3, part_kind::result, 5, 1'000, 250, 2.5, 15};
  auto got = std::get<part>(std::get<event>(*decode(encode(event{sent}), 500)));
  EXPECT_EQ(got.round, sent.round);
  EXPECT_EQ(got.view, 3u);
  EXPECT_EQ(got.kind, part_kind::result);
  EXPECT_EQ(got.index, 5u);
  EXPECT_EQ(got.offset, 1'000u);
  EXPECT_EQ(got.count, 250u);
  EXPECT_EQ(got.weight, 2.5);
  EXPECT_EQ(got.contributors, 15u);
  auto stored = std::get<dht_store>(
    std::get<call>(*decode(encode(call{1, 2, dht_store{{sample_record()}}}), 0)).what);
  ASSERT_EQ(stored.records.size(), 1u);
  EXPECT_EQ(stored.records[0], sample_record());
  auto begun =
    std::get<begin_group>(std::get<event>(*decode(encode(event{begin_group{plan_for(3)}}), 0)));
  EXPECT_EQ(begun.plan, plan_for(3));
}

TEST(WireConvert, OnlyMessagesThatHaveABodyMayCarryOne) {
  for (const auto& s : samples()) {
    auto bytes = encode(s.what);
    EXPECT_EQ(decode(bytes, s.body_bytes > 0 ? 0 : 1).error().code, ec::protocol_violation)
      << s.name;
    EXPECT_EQ(decode(bytes, body_bytes_max + 1).error().code, ec::oversize) << s.name;
  }
}

TEST(WireConvert, TheIdOfAPeerIsTheHashOfItsKeyWhateverItClaims) {
  auto forged = sample_peer(1);
  forged.id = sample_peer(2).id;
  auto got = std::get<disband_group>(
    std::get<event>(*decode(encode(event{disband_group{"p", {forged}}}), 0)));
  ASSERT_EQ(got.suggested.size(), 1u);
  EXPECT_EQ(got.suggested[0].id, peer_id_of(forged.key));
}

TEST(WireConvert, WeightsAreFiniteAndNotNegative) {
  round_id round;
  for (double bad : {-1.0, -1e-300, std::nan(""), std::numeric_limits<double>::infinity(),
                     -std::numeric_limits<double>::infinity()})
    EXPECT_EQ(event_code(part{round, 0, part_kind::contribution, 0, 0, 1, bad, 0}, 4),
              ec::bad_weight)
      << bad;
  EXPECT_EQ(event_code(part{round, 0, part_kind::contribution, 0, 0, 1, 0, 0}, 4), ec::none);
}

TEST(WireConvert, BandwidthsAreFiniteAndNotNegative) {
  join_group join{"p", "k", {}, {}, {}, member_mode::node, 1, sample_peer(1), {}};
  for (double bad : {std::nan(""), std::numeric_limits<double>::infinity()}) {
    join.bandwidth = bad;
    EXPECT_EQ(code_of(message{call{1, 1, join}}), ec::non_finite);
  }
  join.bandwidth = -1;
  EXPECT_EQ(code_of(message{call{1, 1, join}}), ec::protocol_violation);
}

TEST(WireConvert, ListsBeyondTheirLimitAreRefused) {
  dht_find find;
  EXPECT_EQ(code_of(message{call{1, 1, find}}), ec::protocol_violation) << "no key at all";
  find.keys.resize(keys_per_find_max);
  EXPECT_EQ(code_of(message{call{1, 1, find}}), ec::none);
  find.keys.emplace_back();
  EXPECT_EQ(code_of(message{call{1, 1, find}}), ec::oversize);

  record small{.name = "n"};
  dht_store store;
  store.records.assign(records_per_message_max + 1, small);
  EXPECT_EQ(code_of(message{call{1, 1, store}}), ec::oversize);

  dht_found found;
  found.answers.resize(keys_per_find_max + 1);
  EXPECT_EQ(code_of(message{answer{1, found}}), ec::oversize);
  found.answers.resize(1);
  found.answers[0].nearest.assign(nearest_per_key_max + 1, sample_peer(1));
  EXPECT_EQ(code_of(message{answer{1, found}}), ec::oversize);
  found.answers[0].nearest.clear();
  found.answers[0].records.assign(records_per_message_max + 1, small);
  EXPECT_EQ(code_of(message{answer{1, found}}), ec::oversize);

  dht_stored stored;
  stored.outcomes.assign(records_per_message_max + 1, ec::none);
  EXPECT_EQ(code_of(message{answer{1, stored}}), ec::oversize);
}

TEST(WireConvert, TextsBeyondTheirLimitAreRefused) {
  EXPECT_EQ(event_code(leave_group{std::string(prefix_bytes_max, 'x')}), ec::none);
  EXPECT_EQ(event_code(leave_group{std::string(prefix_bytes_max + 1, 'x')}), ec::oversize);
  EXPECT_EQ(event_code(disband_group{std::string(prefix_bytes_max + 1, 'x'), {}}), ec::oversize);
  join_group join{"p", std::string(group_key_bytes_max + 1, 'k'),
                  {},  {},
                  {},  member_mode::node,
                  1,   sample_peer(1),
                  {}};
  EXPECT_EQ(code_of(message{call{1, 1, join}}), ec::oversize);
  join.group_key = "k";
  join.gather.assign(gather_bytes_max + 1, 'x');
  EXPECT_EQ(code_of(message{call{1, 1, join}}), ec::oversize);
  Header header;
  header.mutable_refusal()->set_detail(std::string(detail_bytes_max + 1, 'x'));
  EXPECT_EQ(code_of(header), ec::oversize);
  // Texts that we send are cut to the limit instead.
  EXPECT_EQ(code_of(message{refusal{1, {ec::timeout, std::string(9'999, 'x')}}}), ec::none);
}

TEST(WireConvert, RecordsBeyondTheRulesOfTheirKindAreRefused) {
  auto code_with = [](auto change) {
    auto entry = sample_record();
    change(entry);
    return event_code(progress_push{entry});
  };
  EXPECT_EQ(code_with([](record&) {}), ec::none);
  EXPECT_EQ(code_with([](record& r) { r.kind = static_cast<record_kind>(200); }),
            ec::protocol_violation);
  EXPECT_EQ(code_with([](record& r) { r.name.assign(257, 'x'); }), ec::protocol_violation);
  EXPECT_EQ(code_with([](record& r) { r.subkey.assign(33, 'x'); }), ec::protocol_violation);
  EXPECT_EQ(code_with([](record& r) { r.value.assign(2_KiB + 1, 'x'); }), ec::protocol_violation);
  Header header;
  auto& entry = *header.mutable_progress_push()->mutable_entry();
  write(sample_record(), entry);
  entry.set_kind(256 + 1);
  EXPECT_EQ(code_of(header), ec::protocol_violation) << "a kind must not be cut to a byte";
  entry.set_kind(1);
  entry.set_signature("short");
  EXPECT_EQ(code_of(header), ec::protocol_violation);
}

TEST(WireConvert, PeersOutOfBoundsAreRefused) {
  auto code_with = [](auto change) {
    Header header;
    auto& peer = *header.mutable_disband_group()->mutable_suggested();
    write(sample_peer(1), peer);
    change(peer);
    return code_of(header);
  };
  EXPECT_EQ(code_with([](proto::Peer&) {}), ec::none);
  EXPECT_EQ(code_with([](proto::Peer& p) { p.set_key("short"); }), ec::protocol_violation);
  EXPECT_EQ(code_with([](proto::Peer& p) { p.mutable_addresses(0)->set_port(0); }),
            ec::protocol_violation);
  EXPECT_EQ(code_with([](proto::Peer& p) { p.mutable_addresses(0)->set_port(65'536); }),
            ec::protocol_violation);
  EXPECT_EQ(code_with([](proto::Peer& p) { p.mutable_addresses(0)->set_host(""); }),
            ec::protocol_violation);
  EXPECT_EQ(
    code_with([](proto::Peer& p) { p.mutable_addresses(0)->set_host(std::string(254, 'a')); }),
    ec::protocol_violation);
  EXPECT_EQ(code_with([](proto::Peer& p) {
              for (int i = 0; i < 3; ++i)
                *p.add_addresses() = p.addresses(0);
            }),
            ec::protocol_violation);
}

TEST(WireConvert, PartsOutOfBoundsAreRefused) {
  round_id round;
  auto with = [&](auto change) {
    part p{round, 0, part_kind::contribution, 0, 0, 1, 1, 0};
    change(p);
    return event_code(p, 4);
  };
  EXPECT_EQ(with([](part&) {}), ec::none);
  EXPECT_EQ(with([](part& p) { p.count = 0; }), ec::protocol_violation);
  EXPECT_EQ(with([](part& p) { p.count = part_elements_max + 1; }), ec::protocol_violation);
  EXPECT_EQ(with([](part& p) { p.index = parts_max; }), ec::protocol_violation);
  EXPECT_EQ(with([](part& p) { p.offset = plan_elements_max + 1; }), ec::protocol_violation);
  EXPECT_EQ(with([](part& p) { p.kind = static_cast<part_kind>(4); }), ec::protocol_violation);
  EXPECT_EQ(with([](part& p) { p.member = round_members_max; }), ec::protocol_violation);
}

TEST(WireConvert, RoundMessagesOutOfBoundsAreRefused) {
  round_id round;
  EXPECT_EQ(event_code(round_propose{round, {1, 1, 0, false}}), ec::protocol_violation)
    << "no participants";
  EXPECT_EQ(event_code(round_commit{round, {1, 1, 0, false}, {}}), ec::protocol_violation);
  EXPECT_EQ(event_code(round_suspect{round, 0, 64, ec::stalled}), ec::protocol_violation);
  EXPECT_EQ(event_code(round_promise{{1, false, {}, true, false}, round}), ec::protocol_violation);
  EXPECT_EQ(event_code(bandwidth_report{round, {}}), ec::none) << "not known any more";
  EXPECT_EQ(event_code(bandwidth_report{round, 0.0}), ec::none) << "it leaves soon";
  EXPECT_EQ(event_code(bandwidth_report{round, -1.0}), ec::protocol_violation);
  EXPECT_EQ(event_code(bandwidth_report{round, std::nan("")}), ec::non_finite);
  EXPECT_EQ(event_code(round_promise{{1, false, {}, false, false}, round}), ec::none);
  round_view view{1, 1, 1, false, {}};
  std::vector<signature> proof(round_members_max);
  EXPECT_EQ(event_code(round_commit{round, view, proof}), ec::none);
  EXPECT_EQ(event_code(round_promise{{1, true, view, true, true}, round, proof}), ec::none);
  proof.emplace_back();
  EXPECT_EQ(event_code(round_commit{round, view, proof}), ec::oversize);
  EXPECT_EQ(event_code(round_promise{{1, true, view, true, true}, round, proof}), ec::oversize);
  Header header;
  header.mutable_round_prepared()->set_round("short");
  EXPECT_EQ(code_of(header), ec::protocol_violation);
}

TEST(WireConvert, PromisesThatAreShownAreOfDifferentMembersAndSigned) {
  round_view view{64, 1, 1, false, {}};
  takeover_promise promise{64, true, first_view(plan_for(3)), false, false, {}, {}};
  auto with = [&](auto change) {
    Header header;
    auto& to = *header.mutable_round_propose();
    to.set_round(std::string{round_id{}.raw()});
    write(view, *to.mutable_view());
    for (std::uint32_t member : {1, 2}) {
      auto& shown = *to.add_promises();
      shown.set_member(member);
      write(promise.view, *shown.mutable_view());
      shown.set_by(std::string{promise.by.raw()});
    }
    change(*to.mutable_promises());
    return code_of(header);
  };
  EXPECT_EQ(with([](auto&) {}), ec::none);
  EXPECT_EQ(with([](auto& p) { p[1].set_member(1); }), ec::protocol_violation) << "twice";
  EXPECT_EQ(with([](auto& p) { p[1].set_member(64); }), ec::protocol_violation);
  EXPECT_EQ(with([](auto& p) { p[0].clear_by(); }), ec::protocol_violation) << "not signed";
  EXPECT_EQ(with([](auto& p) { p[0].set_value("short"); }), ec::protocol_violation);
  EXPECT_EQ(with([](auto& p) { p[0].clear_view(); }), ec::protocol_violation);
  EXPECT_EQ(with([](auto& p) {
              while (p.size() <= static_cast<int>(round_members_max))
                *p.Add() = p[0];
            }),
            ec::oversize);
}

TEST(WireConvert, APlanThatIsBrokenIsRefused) {
  auto plan = plan_for(3);
  plan.shares[0] += 1;
  EXPECT_EQ(event_code(begin_group{plan}), ec::protocol_violation);
  Header header;
  write(plan_for(3), *header.mutable_begin_group()->mutable_plan());
  header.mutable_begin_group()->mutable_plan()->mutable_codecs(0)->set_codec(256);
  EXPECT_EQ(code_of(header), ec::protocol_violation) << "a codec must not be cut to a byte";
  EXPECT_EQ(event_code(begin_group{plan_for(65)}), ec::protocol_violation);
}

TEST(WireConvert, StateHeadersOutOfBoundsAreRefused) {
  EXPECT_EQ(code_of(message{answer{1, state_header{{}, {}, {}, 1, 0}}}), ec::protocol_violation);
  EXPECT_EQ(code_of(message{answer{1, state_header{{}, {}, {}, 1, body_bytes_max + 1}}}),
            ec::protocol_violation);
}

TEST(WireConvert, CodesOfANewerVersionBecomeInternal) {
  Header header;
  header.mutable_refusal()->set_code(250);
  EXPECT_EQ(std::get<refusal>(*decode(header.SerializeAsString(), 0)).why.code, ec::internal);
  header.mutable_refusal()->set_code(0); // a refusal without an error
  EXPECT_EQ(std::get<refusal>(*decode(header.SerializeAsString(), 0)).why.code, ec::internal);
  header.mutable_refusal()->set_code(256);
  EXPECT_EQ(std::get<refusal>(*decode(header.SerializeAsString(), 0)).why.code, ec::internal);
}

TEST(WireConvert, BytesThatAreNotAMessageAreRefused) {
  EXPECT_EQ(decode("", 0).error().code, ec::protocol_violation);
  EXPECT_EQ(decode("\xff\xff\xff\xff", 0).error().code, ec::malformed);
  EXPECT_EQ(decode(std::string(header_bytes_max + 1, 'x'), 0).error().code, ec::oversize);
}

TEST(WireConvert, CutOffMessagesNeverCrash) {
  for (const auto& s : samples()) {
    auto bytes = encode(s.what);
    for (std::size_t n = 0; n < bytes.size(); ++n)
      (void)decode(std::string_view{bytes}.substr(0, n), s.body_bytes);
  }
}

TEST(WireConvert, MutatedAndRandomBytesNeverCrashAndWhatPassesPassesAgain) {
  random_source random{20'231};
  auto all = samples();
  for (int i = 0; i < 60'000; ++i) {
    std::string bytes;
    std::size_t body = 0;
    if (i % 4 == 0) {
      bytes.resize(random.below(200));
      random.fill(std::as_writable_bytes(std::span{bytes}));
    } else {
      const auto& s = all[random.below(all.size())];
      bytes = encode(s.what);
      body = s.body_bytes;
      for (auto n = 1 + random.below(4); n > 0 && !bytes.empty(); --n) {
        auto at = random.below(bytes.size());
        switch (random.below(3)) {
          case 0:
            bytes[at] = static_cast<char>(random.next());
            break;
          case 1:
            bytes.erase(at, 1 + random.below(3));
            break;
          default:
            bytes.insert(at, 1, static_cast<char>(random.next()));
        }
      }
    }
    auto out = decode(bytes, body);
    if (!out.ok()) {
      ASSERT_NE(out.error().code, ec::none);
      continue;
    }
    auto again = decode(encode(*out), body);
    ASSERT_TRUE(again.ok()) << "turn " << i << ": " << to_string(again.error());
  }
}

} // namespace
} // namespace waggle::wire
