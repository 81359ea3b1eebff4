// A trainer that is stopped and started again, as often as one likes, ends where it would have
// ended without the stops.

#include "tests/processes/checkpoints.hpp"
#include "tests/processes/peer.hpp"

namespace waggle::testing {
namespace {

struct setting {
  const char* name;
  std::vector<std::string> options;
  std::uint64_t last_epoch = 60;
  std::vector<std::uint64_t> stops{5, 17, 30, 44}; // in these epochs, or soon after
};

void PrintTo(const setting& s, std::ostream* out) {
  *out << s.name;
}

struct Stopped : ::testing::TestWithParam<setting> {
  /// A trainer that is alone. All have one identity, which selects the samples.
  std::unique_ptr<peer> start(const std::string& name) const {
    auto all = words("train --run-id stopped --seed 7 --model mlp --width 16 --layers 1 "
                     "--micro-batch 4 --step-interval 4ms --checkpoint-interval 50ms --linger 5m "
                     "--target-batch-size 64", // 16 passes: few stops fall between two epochs
                     {"--identity", (folder.path() / "identity.pem").string(), "--epochs",
                      std::to_string(GetParam().last_epoch)});
    all.insert(all.end(), GetParam().options.begin(), GetParam().options.end());
    return std::make_unique<peer>(folder, name, all);
  }
  /// The parameters and statistics with which it ends the run.
  checkpoint state_at_the_end(peer& who, const std::string& name) const {
    EXPECT_TRUE(eventually([&] {
      auto s = status_of(who);
      return s.is_object() && s.value("phase", "") == "finished";
    }))
      << who.log();
    stop(who);
    return last_checkpoint(folder.path() / name);
  }
  static void stop(peer& who) {
    who.signal(SIGTERM);
    EXPECT_EQ(who.await_exit(), 0) << who.log();
  }

  scratch_folder folder;
};

TEST_P(Stopped, EndsWithTheParametersOfARunWithoutStops) { // F19
  auto last_epoch = GetParam().last_epoch;
  auto whole = start("whole");
  auto expected = state_at_the_end(*whole, "whole");
  ASSERT_EQ(expected.epoch, last_epoch) << whole->log();
  bool kept = false; // the samples of an epoch in which it was stopped
  for (std::uint64_t until : GetParam().stops) {
    auto part = start("stopped");
    ASSERT_TRUE(eventually([&] { return epoch_of(*part) >= until; })) << part->log();
    EXPECT_LT(epoch_of(*part), last_epoch) << "it was stopped too late to prove anything";
    stop(*part);
    kept |= part->log().find("samples of the unfinished epoch are kept") != std::string::npos;
  }
  auto last = start("stopped");
  auto end = state_at_the_end(*last, "stopped");
  EXPECT_EQ(end.epoch, last_epoch);
  EXPECT_EQ(end.parameters, expected.parameters) << last->log();
  EXPECT_TRUE(end.learner == expected.learner) << "statistics or steps of the optimizer";
  EXPECT_TRUE(kept);
}

INSTANTIATE_TEST_SUITE_P(
  Each, Stopped,
  ::testing::Values(setting{"Collaborative",
                            {"--optimizer", "adam", "--schedule", "cosine", "--codec", "uniform8",
                             "--error-feedback", "true"}},
                    setting{"DelayedGradients", {"--delay-grad-averaging", "true"}},
                    setting{"ScaledLossInReusedBuffers",
                            {"--loss-scale", "1024", "--reuse-grad-buffers", "true"},
                            28,
                            {4, 8, 12}}),
  [](const auto& info) { return std::string{info.param.name}; });

TEST(BegunFromACheckpoint, ARunDoesNotNeedItOnceItHasOneOfItsOwn) {
  scratch_folder folder;
  auto train = [&](const std::string& name, const std::string& epochs,
                   const std::vector<std::string>& more) {
    std::vector<std::string> all{"train",   "--run-id", name,       "--model",  "mlp",
                                 "--width", "16",       "--layers", "1",        "--micro-batch",
                                 "4",       "--epochs", epochs,     "--linger", "0s"};
    all.insert(all.end(), more.begin(), more.end());
    return peer{folder, name, all};
  };
  auto file = folder.path() / "first.wgl";
  std::vector<std::string> from{"--strategy", "diloco:steps=4", "--from", file.string()};
  auto missing = train("second", "2", from);
  EXPECT_EQ(missing.await_exit(), 2) << missing.log();
  EXPECT_FALSE(missing.address());
  auto first = train("first", "3", {"--target-batch-size", "16"});
  ASSERT_EQ(first.await_exit(), 0) << first.log();
  auto left = last_checkpoint(folder.path() / "first");
  std::ofstream{file, std::ios::binary} << left.image;
  auto begun = train("second", "2", from);
  ASSERT_EQ(begun.await_exit(), 0) << begun.log();
  EXPECT_NE(begun.log().find("begins with the parameters of"), std::string::npos);
  std::filesystem::remove(file);
  auto again = train("second", "4", from);
  EXPECT_EQ(again.await_exit(), 0) << again.log();
  EXPECT_EQ(again.log().find("begins with the parameters of"), std::string::npos) << again.log();
  EXPECT_NE(again.log().find("is not read"), std::string::npos) << again.log();
  EXPECT_EQ(last_checkpoint(folder.path() / "second").epoch, 4U);
}

} // namespace
} // namespace waggle::testing
