#include "runtime/crypto/member_list.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace waggle {
namespace {

using ::testing::HasSubstr;

const auto authority = identity::from_seed(1);
const auto ann = identity::from_seed(2) -> id();
const auto bob = identity::from_seed(3) -> id();
constexpr swarm_time now{std::chrono::hours{24 * 365 * 50}};
constexpr auto day = std::chrono::hours{24};

member_list list_of(std::uint64_t version, std::vector<member_list::member> members,
                    const identity& by = *authority) {
  auto made = member_list::sign(by, version, std::move(members), now + day);
  EXPECT_TRUE(made) << to_string(made.error());
  return *made;
}

std::unique_ptr<run_members> knowing(const std::string& bytes) {
  auto out = std::make_unique<run_members>(authority->key());
  EXPECT_TRUE(*out->take(bytes));
  return out;
}

TEST(MemberList, HasOneEncodingThatIsReadAgain) {
  auto list = list_of(3, {{ann, now + day}, {bob, now + 2 * day}});
  auto again = member_list::parse(list.bytes());
  EXPECT_EQ(again->members(), list.members());
  EXPECT_EQ(again->rank(), list.rank());
  EXPECT_EQ(again->end(), now + 2 * day) << "the list ends with its last member";
  EXPECT_EQ(list.bytes(), list_of(3, {{bob, now + 2 * day}, {ann, now + day}}).bytes());
  EXPECT_EQ(list.find(ann)->until, now + day);
  EXPECT_EQ(list.find(identity::from_seed(4)->id()), nullptr);
}

TEST(MemberList, RefusesWhateverWasChanged) {
  const auto bytes = list_of(3, {{ann, now + day}, {bob, now + day}}).bytes();
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    auto other = bytes;
    other[i] = static_cast<char>(other[i] ^ 1);
    EXPECT_FALSE(member_list::parse(other)) << "byte " << i;
  }
  for (std::size_t size : {std::size_t{0}, std::size_t{20}, bytes.size() - 1})
    EXPECT_EQ(member_list::parse(bytes.substr(0, size)).error().code, ec::malformed) << size;
  EXPECT_EQ(member_list::parse(bytes + "x").error().code, ec::malformed);
  EXPECT_EQ(member_list::parse(std::string(member_list::bytes_max + 1, 'x')).error().code,
            ec::oversize);
  EXPECT_EQ(member_list::sign(*authority, 1, {{ann, now}, {ann, now}}).error().code, ec::malformed)
    << "a member twice";
}

TEST(MemberList, HoldsSoManyMembersAndNoMore) {
  std::vector<member_list::member> all(member_list::members_max);
  for (std::size_t i = 0; i < all.size(); ++i) {
    all[i].id.bytes[0] = static_cast<std::byte>(i);
    all[i].id.bytes[1] = static_cast<std::byte>(i >> 8);
    all[i].until = now + day;
  }
  EXPECT_EQ(list_of(1, all).bytes().size(), member_list::bytes_max);
  all.push_back({ann, now + day});
  EXPECT_THAT(member_list::sign(*authority, 1, all).error().detail, HasSubstr("4097"));
}

TEST(Membership, TakesTheNewestListOfItsAuthority) {
  auto known = knowing(list_of(3, {{ann, now + day}}).bytes());
  EXPECT_FALSE(*known->take(list_of(2, {{bob, now + day}}).bytes())) << "an older one";
  EXPECT_EQ(known->judge(ann, now).here.code, ec::none);
  int changes = 0;
  known->on_change([&] { ++changes; });
  EXPECT_TRUE(*known->take(list_of(4, {{bob, now + day}}).bytes()));
  EXPECT_EQ(changes, 1);
  EXPECT_EQ(known->judge(ann, now).here.code, ec::not_a_member);
  EXPECT_EQ(known->judge(bob, now).here.code, ec::none);
  auto foreign = known->take(list_of(9, {{ann, now + day}}, *identity::from_seed(5)).bytes());
  EXPECT_EQ(foreign.error().code, ec::bad_signature);
  EXPECT_THAT(foreign.error().detail, HasSubstr("another authority"));
  EXPECT_EQ(known->rank().version, 4U);
  EXPECT_EQ(changes, 1);
}

TEST(Membership, OfTwoListsOfOneVersionAllTakeTheSame) {
  auto one = list_of(3, {{ann, now + day}});
  auto other = list_of(3, {{bob, now + day}});
  for (const auto* first : {&one, &other}) {
    auto known = knowing(first->bytes());
    (void)known->take(one.bytes());
    (void)known->take(other.bytes());
    EXPECT_EQ(known->rank().hash, std::min(one.rank().hash, other.rank().hash));
  }
}

TEST(Membership, SaysToBothEndsWhyAPeerIsNoMember) {
  run_members none{authority->key()};
  EXPECT_THAT(none.judge(ann, now).here.detail, HasSubstr("no list of members yet"));
  auto known = knowing(list_of(3, {{ann, now + day}, {bob, now + 2 * day}}).bytes());
  EXPECT_EQ(known->judge(ann, now + day).here.code, ec::not_a_member) << "its time is over";
  EXPECT_THAT(known->judge(ann, now + day).there.detail, HasSubstr("its time on it ended on"));
  EXPECT_EQ(known->judge(bob, now + day).here.code, ec::none);
  EXPECT_THAT(known->judge(bob, now + 2 * day).here.detail, HasSubstr("is over since"));
  auto stranger = identity::from_seed(6)->id();
  EXPECT_THAT(known->judge(stranger, now).there.detail, HasSubstr(to_string(stranger)));
  EXPECT_EQ(known->next_end(now), now + day);
  EXPECT_EQ(known->next_end(now + day), now + 2 * day);
  EXPECT_EQ(known->next_end(now + 2 * day), std::nullopt);
}

TEST(MemberList, DatesAreDays) {
  EXPECT_EQ(date_of(*end_of_day("2027-01-31")), "2027-01-31 23:59 UTC");
  for (const char* wrong :
       {"", "2027-02-30", "2027-1-31", "31.01.2027", "2027-01-3x", "9999-01-01"})
    EXPECT_EQ(end_of_day(wrong), std::nullopt) << wrong;
}

TEST(MemberList, IsTextInARunFile) {
  auto list = list_of(3, {{ann, now + day}});
  EXPECT_EQ(*read_list(inline_text(list)), list.bytes());
  EXPECT_FALSE(read_list("list:xyz"));
  EXPECT_FALSE(read_list("/no/such/file"));
}

} // namespace
} // namespace waggle
