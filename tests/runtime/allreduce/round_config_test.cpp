#include "runtime/allreduce/round_config.hpp"

#include <gtest/gtest.h>

namespace waggle {
namespace {

using namespace std::chrono_literals;

TEST(RoundConfig, EveryWaitIsFiniteFromTheBeginning) {
  EXPECT_TRUE(check_round_config({}));
}

TEST(RoundConfig, RefusesWaitsThatAreNoneOrForEverAndNamesThem) {
  for (auto [name, field] : {std::pair{"stall_timeout", &round_config::stall_timeout},
                             std::pair{"takeover_timeout", &round_config::takeover_timeout},
                             std::pair{"deadline", &round_config::deadline}})
    for (auto wait : {0ms, -1ms, milliseconds::max()}) {
      round_config config;
      config.*field = wait;
      auto checked = check_round_config(config);
      ASSERT_FALSE(checked) << name << " " << wait.count();
      EXPECT_EQ(checked.error().code, ec::bad_config);
      EXPECT_EQ(checked.error().detail.rfind(name, 0), 0U) << checked.error().detail;
    }
}

} // namespace
} // namespace waggle
