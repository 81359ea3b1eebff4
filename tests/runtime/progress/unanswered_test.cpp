#include "runtime/progress/unanswered.hpp"

#include <gtest/gtest.h>

#include "runtime/progress/founding.hpp"

namespace waggle {
namespace {

TEST(Unanswered, CountsWhatIsWithoutABreak) {
  founding_situation nobody;
  nobody.join_timeout = 15s;
  nobody.may_start_alone = false;
  auto reached = nobody;
  reached.connected = true;
  unanswered wait{"birds", {{"10.0.0.1", 7700}}, 10min};
  steady_time now{1h};
  auto look = [&](const founding_situation& at, milliseconds after) {
    now += after;
    return wait.look(decide_founding(at).why, now);
  };
  EXPECT_FALSE(look(nobody, 0s));
  EXPECT_FALSE(look(nobody, 10min - 1ms));
  EXPECT_FALSE(look(reached, 1s)) << "somebody answers";
  EXPECT_FALSE(look(nobody, 1s));
  EXPECT_FALSE(look(nobody, 10min - 1ms));
  auto why = look(nobody, 1ms);
  ASSERT_TRUE(why);
  EXPECT_EQ(why->code, ec::unreachable);
  EXPECT_EQ(
    why->detail.rfind("no peer of a run named birds has answered for 600 s (10.0.0.1:7700, ", 0),
    0U)
    << why->detail;
}

} // namespace
} // namespace waggle
