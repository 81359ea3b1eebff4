// Which actors a peer of `waggle train` has, with the options that it has by default.

#include <set>

#include <gmock/gmock.h>

#include "tests/processes/peer.hpp"

namespace waggle::testing {
namespace {

TEST(Actors, OfATrainingPeerAreInItsStatus) {
  scratch_folder folder;
  const auto small = words("train --run-id actors --width 16 --layers 1 --target-batch-size 32 "
                           "--step-interval 20ms --micro-batch 4");
  peer first{folder, "first", small};
  auto at = to_string(first.await_address());
  auto more = small;
  more.insert(more.end(), {"--initial-peers", at});
  peer second{folder, "second", more};
  nlohmann::json status;
  auto look = [&] {
    auto out = folder.path() / "status";
    auto shown = child_process::start({WAGGLE_PROGRAM, "status", "--json", at}, out);
    EXPECT_TRUE(shown && eventually([&] { return shown->ended().has_value(); }));
    status = nlohmann::json::parse(content_of(out), nullptr, false);
    if (!status.is_object() || status["group_size"] != 2)
      return false;
    // There is one during each round with others.
    const auto& rounds = status["actors"]["allreduce-round"];
    return rounds.is_object() && rounds["started"] > 2;
  };
  ASSERT_TRUE(eventually(look)) << first.log();
  const auto& actors = status["actors"];
  std::set<std::string> running;
  for (const auto& [name, kind] : actors.items())
    if (kind["running"] > 0)
      running.insert(name);
  EXPECT_THAT(running,
              ::testing::IsSupersetOf({"dht-router", "progress-tracker", "matchmaker",
                                       "group-averager", "state-donor", "trainer", "model-worker",
                                       "metrics-exporter", "switchboard", "peer-link", "node"}));
}

} // namespace
} // namespace waggle::testing
