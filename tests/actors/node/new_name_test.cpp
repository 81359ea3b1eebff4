#include "actors/new_name.hpp"

#include "tests/support/actor_test.hpp"

namespace waggle::testing {
namespace {

/// What the peer `n` draws first after its start with a seed that all peers share.
struct NewName : actor_test {
  digest first_name_of(std::uint64_t n) {
    auto ctx = test_context(n, wall);
    ctx.seed = 7;
    auto random = ctx.randomness("names");
    return new_name<digest>(ctx, random);
  }
};

TEST_F(NewName, PeersWithTheSameSeedGiveDifferentNames) {
  EXPECT_NE(first_name_of(1), first_name_of(2));
}

TEST_F(NewName, AProcessThatIsStartedAgainGivesNewNames) {
  auto before = first_name_of(1);
  EXPECT_EQ(first_name_of(1), before) << "on virtual time, all is repeatable";
  pass(1ms);
  EXPECT_NE(first_name_of(1), before);
}

TEST_F(NewName, EachNameIsNew) {
  auto ctx = test_context(1, wall);
  auto random = ctx.randomness("names");
  EXPECT_NE(new_name<round_id>(ctx, random), new_name<round_id>(ctx, random));
}

} // namespace
} // namespace waggle::testing
