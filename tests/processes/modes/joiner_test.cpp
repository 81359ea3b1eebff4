// A trainer that joins without a state of its own has that of its donor, and the next update of
// both is the same, byte for byte.

#include <memory>

#include "tests/processes/checkpoints.hpp"
#include "tests/processes/peer.hpp"

namespace waggle::testing {
namespace {

class Joiners : public ::testing::Test {
protected:
  std::unique_ptr<peer> start(const std::string& name, std::uint64_t epochs,
                              const std::vector<std::string>& more) const {
    auto all = words("train --run-id joiners --model mlp --width 16 --layers 1 --optimizer adam "
                     "--schedule step:every=7,factor=0.8 --micro-batch 4 --target-batch-size 32 "
                     "--checkpoint-interval 0ms --linger 5m",
                     {"--epochs", std::to_string(epochs)});
    all.insert(all.end(), more.begin(), more.end());
    return std::make_unique<peer>(folder, name, all);
  }
  static nlohmann::json await_end(const peer& who, std::uint64_t epochs) {
    nlohmann::json s;
    EXPECT_TRUE(eventually([&] {
      s = status_of(who);
      return s.is_object() && s.value("phase", "") == "finished" && s["epoch"] == epochs;
    }))
      << who.log();
    return s;
  }
  static void stop(peer& who) {
    who.signal(SIGTERM);
    EXPECT_EQ(who.await_exit(), 0) << who.log();
  }
  checkpoint last(const std::string& name) const { return last_checkpoint(folder.path() / name); }

  scratch_folder folder;
};

TEST_F(Joiners, HaveTheStateOfTheirDonorAndMakeTheSameUpdateByteForByte) { // F10
  constexpr std::uint64_t epochs = 20;
  auto donor = start("donor", epochs, {});
  auto through = to_string(donor->await_address());
  (void)await_end(*donor, epochs);
  auto early = start("early", epochs, {"--initial-peers", through});
  auto status = await_end(*early, epochs);
  EXPECT_EQ(status["steps"], 0) << "it has computed nothing itself";
  stop(*early);
  stop(*donor);
  auto given = last("donor");
  ASSERT_EQ(given.epoch, epochs);
  EXPECT_GT(given.statistics, 0U);
  EXPECT_TRUE(last("early").image == given.image);

  // Both make one update more, with the mean of both gradients.
  donor = start("donor", epochs + 1, {"--min-peers", "2"});
  through = to_string(donor->await_address());
  auto late = start("late", epochs + 1, {"--min-peers", "2", "--initial-peers", through});
  auto ours = await_end(*donor, epochs + 1);
  auto theirs = await_end(*late, epochs + 1);
  EXPECT_EQ(ours["learning_rate"], theirs["learning_rate"]);
  EXPECT_EQ(theirs["rounds"]["complete"], 1);
  stop(*late);
  stop(*donor);
  auto expected = last("donor");
  ASSERT_EQ(expected.epoch, epochs + 1);
  EXPECT_NE(expected.parameters, given.parameters);
  EXPECT_TRUE(last("late").image == expected.image);
}

} // namespace
} // namespace waggle::testing
