#include <gtest/gtest.h>

#include "runtime/dht/record_store.hpp"

namespace waggle {
namespace {

const auto now = swarm_time_from(1'700'000'000'000'000'000);

record open_record(std::string subkey, std::string value, std::chrono::nanoseconds life,
                   std::uint64_t sequence = 0) {
  record out{.name = "table",
             .subkey = std::move(subkey),
             .value = std::move(value),
             .expiration = now + life,
             .sequence = sequence};
  return out;
}

record progress_of(const identity& who, std::string run = "demo") {
  record out{.kind = record_kind::progress,
             .name = "demo_progress",
             .value = "epoch 7",
             .expiration = now + 30s};
  sign_record(run, who, out);
  return out;
}

ec verdict(const record& entry, std::string_view run = "demo") {
  auto out = validate_record(run, entry, now, *make_plain_verifier());
  return out.ok() ? ec::none : out.error().code;
}

TEST(Record, IsAcceptedWithItsOwnersSignatureOnly) {
  auto bob = identity::from_seed(1);
  auto good = progress_of(*bob);
  EXPECT_EQ(verdict(good), ec::none);
  EXPECT_EQ(verdict(good, "another run"), ec::bad_signature);
  auto bad = [&](auto change) {
    auto entry = good;
    change(entry);
    return verdict(entry);
  };
  EXPECT_EQ(bad([](record& r) { r.value = "epoch 8"; }), ec::bad_signature);
  EXPECT_EQ(bad([](record& r) { r.expiration += 1s; }), ec::bad_signature)
    << "only the owner can extend its lifetime";
  EXPECT_EQ(bad([](record& r) { ++r.sequence; }), ec::bad_signature);
  EXPECT_EQ(bad([](record& r) { r.tombstone = true; }), ec::bad_signature);
  EXPECT_EQ(bad([](record& r) { r.name = "demo_progresss"; }), ec::bad_signature);
  EXPECT_EQ(bad([](record& r) { r.kind = record_kind::group_member; }), ec::bad_signature);
  EXPECT_EQ(bad([](record& r) { r.by = {}; }), ec::bad_signature);
  EXPECT_EQ(bad([](record& r) { r.by = {}, r.owner = {}; }), ec::not_owner) << "unsigned";
}

TEST(Record, CannotBeWrittenUnderAnotherPeersId) {
  auto bob = identity::from_seed(1);
  auto mallory = identity::from_seed(2);
  auto forged = progress_of(*bob);
  forged.owner = mallory->key();
  forged.by = mallory->sign(signed_bytes("demo", forged));
  EXPECT_EQ(verdict(forged), ec::not_owner);
}

TEST(Record, LivesNeitherInThePastNorTooLong) {
  auto who = identity::from_seed(1);
  auto with = [&](auto life) {
    auto entry = progress_of(*who);
    entry.expiration = now + life;
    sign_record("demo", *who, entry);
    return verdict(entry);
  };
  EXPECT_EQ(with(0s), ec::bad_expiry);
  EXPECT_EQ(with(-1s), ec::bad_expiry);
  EXPECT_EQ(with(10min), ec::none);
  EXPECT_EQ(with(10min + 1ns), ec::bad_expiry);
  auto entry = progress_of(*who);
  entry.expiration = swarm_time::max();
  EXPECT_EQ(verdict(entry), ec::bad_expiry);
  entry.expiration = swarm_time::min();
  EXPECT_EQ(verdict(entry), ec::bad_expiry);
  EXPECT_EQ(
    validate_record("demo", entry, swarm_time_from(-1), *make_plain_verifier()).error().code,
    ec::bad_expiry);
  entry.expiration = swarm_time::max();
  EXPECT_EQ(
    validate_record("demo", entry, swarm_time_from(-1), *make_plain_verifier()).error().code,
    ec::bad_expiry)
    << "the difference does not overflow";
}

TEST(Record, LimitsOfItsKindHold) {
  auto long_one = open_record("", "", 1s);
  long_one.value.assign(64_KiB, 'x');
  EXPECT_EQ(verdict(long_one), ec::none);
  long_one.value += 'x';
  EXPECT_EQ(verdict(long_one), ec::oversize);
  auto nameless = open_record("", "", 1s);
  nameless.name.clear();
  EXPECT_EQ(verdict(nameless), ec::oversize);
  nameless.name.assign(257, 'n');
  EXPECT_EQ(verdict(nameless), ec::oversize);
  auto unknown = open_record("", "", 1s);
  unknown.kind = static_cast<record_kind>(99);
  EXPECT_EQ(verdict(unknown), ec::protocol_violation);
}

TEST(Record, KeysOfDifferentThingsDiffer) {
  auto base = record_key("run", record_kind::open, "name");
  EXPECT_NE(base, record_key("run", record_kind::progress, "name"));
  EXPECT_NE(base, record_key("runn", record_kind::open, "ame"));
  EXPECT_NE(base, record_key("ru", record_kind::open, "nname"));
  EXPECT_EQ(base, record_key("run", record_kind::open, "name"));
}

struct RecordStore : testing::Test {
  dht_id key = record_key("demo", record_kind::open, "table");
  record_store store;
};

TEST_F(RecordStore, KeepsAValueUntilItExpires) {
  EXPECT_TRUE(store.get(key, now).empty());
  EXPECT_EQ(store.put(key, open_record("", "v", 100ms), now), ec::none);
  EXPECT_EQ(store.get(key, now + 99ms).size(), 1u);
  EXPECT_TRUE(store.get(key, now + 100ms).empty());
  store.purge(now + 100ms);
  EXPECT_EQ(store.size(), 0u);
  EXPECT_EQ(store.bytes(), 0u);
  EXPECT_TRUE(store.keys().empty());
}

TEST_F(RecordStore, ALaterExpirationReplaces) {
  EXPECT_EQ(store.put(key, open_record("", "old", 1s), now), ec::none);
  EXPECT_EQ(store.put(key, open_record("", "new", 2s), now), ec::none);
  EXPECT_EQ(store.get(key, now + 1s).at(0).value, "new");
  EXPECT_EQ(store.size(), 1u);
}

TEST_F(RecordStore, ARefusedOlderRecordChangesNothing) {
  EXPECT_EQ(store.put(key, open_record("", "v", 10s), now), ec::none);
  EXPECT_EQ(store.put(key, open_record("", "x", 1s), now), ec::stale_record);
  EXPECT_EQ(store.put(key, open_record("", "x", 10s), now), ec::stale_record)
    << "equal is not newer";
  auto held = store.get(key, now + 9s);
  ASSERT_EQ(held.size(), 1u);
  EXPECT_EQ(held[0].value, "v");
}

TEST_F(RecordStore, ASequenceBeatsAnExpiration) {
  EXPECT_EQ(store.put(key, open_record("", "first", 10s, 1), now), ec::none);
  EXPECT_EQ(store.put(key, open_record("", "second", 5s, 2), now), ec::none);
  EXPECT_EQ(store.put(key, open_record("", "third", 20s, 1), now), ec::stale_record);
  EXPECT_EQ(store.get(key, now).at(0).value, "second");
  EXPECT_TRUE(store.get(key, now + 5s).empty()) << "the newer record's lifetime counts";
  store.purge(now + 5s);
  EXPECT_EQ(store.size(), 0u);
}

TEST_F(RecordStore, SubkeysExpireEachOnItsOwn) {
  EXPECT_EQ(store.put(key, open_record("b", "2", 5s), now), ec::none);
  EXPECT_EQ(store.put(key, open_record("a", "1", 1s), now), ec::none);
  auto both = store.get(key, now);
  ASSERT_EQ(both.size(), 2u);
  EXPECT_EQ(both[0].subkey, "a");
  EXPECT_EQ(both[0].expiration, now + 1s);
  EXPECT_EQ(store.get(key, now + 1s).size(), 1u);
}

TEST_F(RecordStore, ARegularValueAndADictionaryReplaceEachOther) {
  auto names = [&](const std::vector<record>& all) {
    std::string out;
    for (const auto& entry : all)
      out += "<" + entry.subkey + ">";
    return out;
  };
  auto put = [&](std::string subkey, std::chrono::nanoseconds life) {
    return store.put(key, open_record(std::move(subkey), "v", life), now);
  };
  EXPECT_EQ(put("a", 10s), ec::none);
  EXPECT_EQ(put("b", 30s), ec::none);
  EXPECT_EQ(put("", 30s), ec::stale_record) << "one of the dictionary's expires no sooner";
  EXPECT_EQ(names(store.get(key, now)), "<a><b>");
  EXPECT_EQ(put("", 31s), ec::none);
  EXPECT_EQ(names(store.get(key, now)), "<>");
  EXPECT_EQ(put("a", 31s), ec::stale_record);
  EXPECT_EQ(put("a", 32s), ec::none);
  EXPECT_EQ(names(store.get(key, now)), "<a>");
  EXPECT_EQ(store.size(), 1u);
}

TEST(RecordMerge, ReplicasThatDifferGiveARegularValueOrADictionary) {
  record_merge merge;
  merge.add(open_record("", "regular", 20s));
  merge.add(open_record("a", "older", 10s));
  ASSERT_EQ(merge.live(now).size(), 1u);
  EXPECT_EQ(merge.live(now)[0].value, "regular");
  merge.add(open_record("b", "newer", 30s));
  ASSERT_EQ(merge.live(now).size(), 2u);
  EXPECT_EQ(merge.live(now)[1].value, "newer");
}

TEST_F(RecordStore, VisitsNoMoreThanIsTaken) {
  for (const auto* subkey : {"c", "a", "b"})
    EXPECT_EQ(store.put(key, open_record(subkey, "x", 5s), now), ec::none);
  std::vector<std::string> seen;
  store.visit(key, now, [&](const record& entry) {
    seen.push_back(entry.subkey);
    return seen.size() < 2;
  });
  EXPECT_EQ(seen, (std::vector<std::string>{"a", "b"}));
}

TEST_F(RecordStore, OverItsQuotaItEvictsWhatExpiresFirst) {
  record_store small{3 * (record_store::overhead + sizeof(record) + 1'100)};
  std::string big(1'000, 'x');
  EXPECT_EQ(small.put(key, open_record("1", big, 1s), now), ec::none);
  EXPECT_EQ(small.put(key, open_record("2", big, 1s), now), ec::none);
  EXPECT_EQ(small.put(key, open_record("1", big, 2s), now), ec::none);
  EXPECT_EQ(small.put(key, open_record("3", big, 200s), now), ec::none);
  EXPECT_EQ(small.put(key, open_record("4", big, 100s), now), ec::none);
  std::string left;
  for (const auto& r : small.get(key, now))
    left += r.subkey;
  EXPECT_EQ(left, "134");
  EXPECT_EQ(small.put(key, open_record("5", big, 1s), now), ec::overloaded)
    << "it would be the first to be evicted";
  EXPECT_LE(small.bytes(), 3 * (record_store::overhead + sizeof(record) + 1'100));
}

TEST_F(RecordStore, AReplacementThatDoesNotFitLeavesTheOldRecord) {
  record_store small{2 * (record_store::overhead + sizeof(record) + 700)};
  EXPECT_EQ(small.put(key, open_record("a", std::string(500, 'a'), 10s), now), ec::none);
  EXPECT_EQ(small.put(key, open_record("b", std::string(500, 'b'), 100s), now), ec::none);
  EXPECT_EQ(small.put(key, open_record("a", std::string(5'000, 'x'), 20s), now), ec::overloaded);
  ASSERT_EQ(small.get(key, now).size(), 2u) << "a refused record changes nothing";
  EXPECT_EQ(small.get(key, now)[0].value, std::string(500, 'a'));
}

TEST_F(RecordStore, ARecordLargerThanTheStoreEvictsNobody) {
  record_store small{record_store::overhead + sizeof(record) + 700};
  EXPECT_EQ(small.put(key, open_record("a", std::string(500, 'a'), 10s), now), ec::none);
  EXPECT_EQ(small.put(key, open_record("b", std::string(9'000, 'b'), 100s), now), ec::overloaded);
  EXPECT_EQ(small.size(), 1u);
}

TEST_F(RecordStore, ADictionaryIsBounded) {
  record_store large{1_GiB};
  auto many = rules_of(record_kind::open)->entries_max;
  for (std::size_t i = 0; i < many; ++i)
    ASSERT_EQ(large.put(key, open_record(std::to_string(i), "", 1s), now), ec::none);
  EXPECT_EQ(large.put(key, open_record("one more", "", 100s), now), ec::overloaded);
  EXPECT_EQ(large.put(key, open_record("7", "", 100s), now), ec::none)
    << "stored records may be renewed";
}

// -- strangers -----------------------------------------------------------------------------------

record progress_with(const identity& who, std::chrono::nanoseconds life, std::string name = "run") {
  record out{.kind = record_kind::progress,
             .name = std::move(name),
             .value = std::string(1'000, 'p'),
             .expiration = now + life};
  sign_record("demo", who, out);
  return out;
}

struct Strangers : RecordStore {
  static constexpr std::uint64_t one = record_store::overhead + sizeof(record) + 1'100;

  ec put(std::uint64_t who, const record_source& from, std::chrono::nanoseconds life = 60s,
         const std::string& name = "run") {
    auto entry = progress_with(*identity::from_seed(who), life, name);
    return small.put(record_key("demo", entry.kind, entry.name), entry, now, from);
  }
  bool holds(std::uint64_t who, const std::string& name = "run") {
    std::string id{identity::from_seed(who)->id().raw()};
    for (const auto& r : small.get(record_key("demo", record_kind::progress, name), now))
      if (r.subkey == id)
        return true;
    return false;
  }

  record_store small{record_store::limits{10 * one, 4 * one, 3}};
};

TEST_F(Strangers, NeverCostAMemberItsRecord) {
  EXPECT_EQ(put(1, {true, {}}, 5s), ec::none);
  for (std::uint64_t who = 100; who < 200; ++who)
    (void)put(who, {false, "flood"}, 10min);
  EXPECT_TRUE(holds(1));
  EXPECT_LE(small.bytes(), 5 * one) << "they have used up their own part";
  for (std::uint64_t who = 2; who < 10; ++who)
    EXPECT_EQ(put(who, {true, {}}, 5s), ec::none) << who;
  EXPECT_LE(small.bytes(), 10 * one) << "strangers made room";
  EXPECT_TRUE(holds(1));
}

TEST_F(Strangers, RecordsWithoutContentTakeRoom) {
  for (std::uint64_t who = 100; who < 200; ++who) {
    auto entry = progress_with(*identity::from_seed(who), 60s);
    entry.value.clear();
    (void)small.put(record_key("demo", entry.kind, entry.name), entry, now, {false, "flood"});
  }
  EXPECT_LE(small.size(), 4 * one / record_store::overhead);
}

TEST_F(Strangers, OfOneHostLeaveThoseOfOthersTheirShare) {
  for (std::uint64_t who = 100; who < 104; ++who)
    EXPECT_EQ(put(who, {false, "flood"}, 10min), ec::none);
  EXPECT_EQ(put(104, {false, "flood"}, 9min), ec::overloaded) << "it would expire first";
  EXPECT_EQ(put(2, {false, "newcomer"}, 5s), ec::none);
  for (std::uint64_t who = 105; who < 150; ++who)
    (void)put(who, {false, "flood"}, 10min);
  EXPECT_TRUE(holds(2));
}

TEST_F(Strangers, AreListedAfterMembers) {
  EXPECT_EQ(put(100, {false, "a"}), ec::none);
  EXPECT_EQ(put(101, {true, {}}), ec::none);
  EXPECT_EQ(put(102, {false, "a"}), ec::none);
  auto all = small.get(record_key("demo", record_kind::progress, "run"), now);
  ASSERT_EQ(all.size(), 3U);
  EXPECT_EQ(all[0].subkey, identity::from_seed(101)->id().raw());
}

TEST_F(Strangers, BecomeMembersWithTheirNextRecord) {
  EXPECT_EQ(put(100, {false, "flood"}, 10s), ec::none);
  EXPECT_EQ(put(100, {true, {}}, 20s), ec::none);
  for (std::uint64_t who = 101; who < 110; ++who)
    (void)put(who, {false, "flood"}, 10min);
  EXPECT_TRUE(holds(100));
}

TEST_F(Strangers, AnOwnerWithTooManyRecordsLosesItsOldest) {
  for (auto name : {"a", "b", "c", "d"})
    EXPECT_EQ(put(1, {true, {}}, name == std::string{"b"} ? 1s : 60s, name), ec::none);
  EXPECT_TRUE(holds(1, "a"));
  EXPECT_FALSE(holds(1, "b"));
  EXPECT_TRUE(holds(1, "d"));
}

TEST_F(Strangers, AreForgottenWhenTheirRecordsExpire) {
  EXPECT_EQ(put(100, {false, "flood"}, 1s), ec::none);
  small.purge(now + 1s);
  EXPECT_EQ(small.bytes(), 0U);
  for (std::uint64_t who = 101; who < 105; ++who)
    EXPECT_EQ(put(who, {false, "flood"}, 10min), ec::none);
}

TEST_F(RecordStore, ExpiredRecordsAreNotTaken) {
  EXPECT_EQ(store.put(key, open_record("", "", 0s), now), ec::bad_expiry);
}

TEST_F(RecordStore, ATombstoneHidesOlderRecordsOfOtherSources) {
  record_merge merge;
  auto dead = open_record("a", "", 10s, 5);
  dead.tombstone = true;
  merge.add(dead);
  merge.add(open_record("a", "alive", 20s, 4));
  merge.add(open_record("b", "old", 5s));
  merge.add(open_record("b", "new", 6s));
  merge.add(open_record("b", "old", 5s));
  auto live = merge.live(now);
  ASSERT_EQ(live.size(), 1u);
  EXPECT_EQ(live[0].value, "new");
  EXPECT_TRUE(merge.live(now + 6s).empty());
}

} // namespace
} // namespace waggle
