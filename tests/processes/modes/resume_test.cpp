// A trainer that is stopped and started again, as often as one likes, ends where it would have
// ended without the stops.

#include "tests/processes/peer.hpp"

namespace waggle::testing {
namespace {

constexpr std::uint64_t last_epoch = 60;

struct setting {
  const char* name;
  std::vector<std::string> options;
};

void PrintTo(const setting& s, std::ostream* out) {
  *out << s.name;
}

struct Stopped : ::testing::TestWithParam<setting> {
  /// A trainer that is alone. All have one identity, which selects the samples.
  std::unique_ptr<peer> start(const std::string& name) const {
    std::vector<std::string> all{"train",
                                 "--run-id",
                                 "stopped",
                                 "--identity",
                                 (folder.path() / "identity.pem").string(),
                                 "--seed",
                                 "7",
                                 "--model",
                                 "mlp",
                                 "--width",
                                 "16",
                                 "--layers",
                                 "1",
                                 "--micro-batch",
                                 "4",
                                 "--target-batch-size",
                                 "32",
                                 "--step-interval",
                                 "8ms",
                                 "--checkpoint-interval",
                                 "50ms",
                                 "--epochs",
                                 std::to_string(last_epoch),
                                 "--linger",
                                 "5m"};
    all.insert(all.end(), GetParam().options.begin(), GetParam().options.end());
    return std::make_unique<peer>(folder, name, all);
  }
  static std::uint64_t epoch_of(const peer& who) {
    auto s = status_of(who);
    return s.is_object() && s.contains("epoch") && s["epoch"].is_number()
             ? s["epoch"].get<std::uint64_t>()
             : 0;
  }
  static nlohmann::json parameters_at_the_end(peer& who) {
    nlohmann::json parameters;
    EXPECT_TRUE(eventually([&] {
      auto s = status_of(who);
      bool is = s.is_object() && s.value("phase", "") == "finished";
      parameters = is ? s["parameters"] : parameters;
      return is;
    }))
      << who.log();
    stop(who);
    return parameters;
  }
  static void stop(peer& who) {
    who.signal(SIGTERM);
    EXPECT_EQ(who.await_exit(), 0) << who.log();
  }

  scratch_folder folder;
};

TEST_P(Stopped, EndsWithTheParametersOfARunWithoutStops) { // F19
  auto whole = start("whole");
  auto expected = parameters_at_the_end(*whole);
  ASSERT_TRUE(expected.is_string()) << whole->log();
  bool kept = false; // the samples of an epoch in which it was stopped
  for (std::uint64_t until : {5U, 17U, 30U, 44U}) {
    auto part = start("stopped");
    ASSERT_TRUE(eventually([&] { return epoch_of(*part) >= until; })) << part->log();
    EXPECT_LT(epoch_of(*part), last_epoch) << "it was stopped too late to prove anything";
    stop(*part);
    kept |= part->log().find("samples of the unfinished epoch are kept") != std::string::npos;
  }
  auto last = start("stopped");
  EXPECT_EQ(parameters_at_the_end(*last), expected) << last->log();
  EXPECT_TRUE(kept);
}

INSTANTIATE_TEST_SUITE_P(
  Each, Stopped,
  ::testing::Values(setting{"Collaborative", {"--optimizer", "adam", "--schedule", "cosine"}},
                    setting{"DelayedGradients", {"--delay-grad-averaging", "true"}}),
  [](const auto& info) { return std::string{info.param.name}; });

} // namespace
} // namespace waggle::testing
