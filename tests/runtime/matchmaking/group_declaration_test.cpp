#include "runtime/matchmaking/group_declaration.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace waggle {
namespace {

const swarm_time t0{500'000h};

struct GroupDeclaration : testing::Test {
  static peer_record me(const identity& who, std::vector<endpoint> addresses) {
    return {who.id(), who.key(), std::move(addresses), false};
  }
  /// The checks of a reader before it reads the value.
  status valid(const record& entry) const {
    return validate_record("run", entry, t0, *make_plain_verifier());
  }

  std::shared_ptr<const identity> self = identity::from_seed(1);
  group_key bucket = *group_key::make("demo", "01");
  std::vector<endpoint> addresses{{"one", 7700}, {"two", 7701}};
  group_declaration declaration{"run", self};
};

TEST_F(GroupDeclaration, IsReadBackByTheOthers) {
  auto entry = declaration.declare(bucket, addresses, t0 + 5s, t0);
  EXPECT_TRUE(valid(entry).ok());
  EXPECT_EQ(entry.kind, record_kind::group_member);
  EXPECT_EQ(entry.name, "demo.0b01");
  auto read = read_declaration(entry);
  ASSERT_TRUE(read);
  EXPECT_EQ(read->who, me(*self, addresses));
  EXPECT_EQ(read->expiration, t0 + 5s);
}

TEST_F(GroupDeclaration, IsWithdrawnOnceByATombstone) {
  EXPECT_FALSE(declaration.withdraw(t0)) << "there is no valid declaration";
  auto entry = declaration.declare(bucket, addresses, t0 + 5s, t0);
  auto gone = declaration.withdraw(t0 + 1s);
  ASSERT_TRUE(gone);
  EXPECT_TRUE(valid(*gone).ok());
  EXPECT_TRUE(gone->tombstone);
  EXPECT_EQ(gone->name, entry.name);
  EXPECT_EQ(gone->subkey, entry.subkey);
  EXPECT_EQ(gone->expiration, entry.expiration)
    << "the tombstone lives as long as the declaration that it hides";
  EXPECT_THAT(gone->value, testing::IsEmpty());
  EXPECT_FALSE(declaration.withdraw(t0 + 1s));
}

TEST_F(GroupDeclaration, OneThatExpiredNeedsNoTombstone) {
  (void)declaration.declare(bucket, addresses, t0 + 5s, t0);
  EXPECT_FALSE(declaration.withdraw(t0 + 5s));
}

TEST_F(GroupDeclaration, EachWordIsNewerThanTheOneBeforeWhateverTheClockSays) {
  auto last = declaration.declare(bucket, addresses, t0 + 5s, t0).sequence;
  for (auto now : {t0, t0 - 1h, t0}) {
    auto gone = declaration.withdraw(now);
    ASSERT_TRUE(gone);
    EXPECT_GT(gone->sequence, last);
    last = declaration.declare(bucket, addresses, t0 + 5s, now).sequence;
    EXPECT_GT(last, gone->sequence);
  }
}

TEST_F(GroupDeclaration, OfAnyValueOnlyAFewGoodAddressesAreBelieved) {
  auto entry = declaration.declare(bucket, addresses, t0 + 5s, t0);
  entry.value = ",,nonsense,a:1,b:99999,c:2,";
  EXPECT_THAT(read_declaration(entry)->who.addresses,
              testing::ElementsAre(endpoint{"a", 1}, endpoint{"c", 2}));
  entry.value.clear();
  for (int i = 0; i < 1000; ++i)
    entry.value += "a:1,";
  EXPECT_THAT(read_declaration(entry)->who.addresses, testing::SizeIs(addresses_max));
  entry.value = std::string(4096, '\0');
  EXPECT_THAT(read_declaration(entry)->who.addresses, testing::IsEmpty());
  entry.subkey = "short";
  EXPECT_FALSE(read_declaration(entry));
}

} // namespace
} // namespace waggle
