// Options of hivemind's optimizer that exclude each other: each combination is refused
// with a sentence that names both options and says what to do.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/runtime/config/flags.hpp"

using namespace waggle;
using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;

namespace {

struct contradiction {
  std::map<std::string, std::string> set;
  std::pair<const char*, const char*> named; // in the sentence
};

const contradiction contradictions[] = {
  {{{"client-mode", "true"}, {"initial-peers", "a:1"}, {"auxiliary", "true"}},
   {"--client-mode", "--auxiliary"}},
  {{{"auxiliary", "true"}, {"micro-batch", "4"}}, {"--auxiliary", "--micro-batch"}},
  {{{"strategy", "local-updates"}, {"reuse-grad-buffers", "true"}},
   {"--reuse-grad-buffers", "--strategy collaborative"}},
  {{{"strategy", "local-updates"}, {"delay-grad-averaging", "true"}},
   {"--delay-grad-averaging", "--strategy collaborative"}},
  {{{"strategy", "local-updates"}, {"delay-optimizer-step", "true"}},
   {"--delay-optimizer-step", "--strategy collaborative"}},
  {{{"delay-optimizer-step", "true"}, {"offload-optimizer", "false"}},
   {"--delay-optimizer-step", "--offload-optimizer"}},
  {{{"delay-optimizer-step", "true"}, {"delay-state-averaging", "false"}},
   {"--delay-state-averaging", "collaborative"}},
  {{{"matchmaking-time", "60s"}, {"averaging-timeout", "60s"}},
   {"--matchmaking-time", "--averaging-timeout"}},
  {{{"allreduce-timeout", "2m"}}, {"--allreduce-timeout", "--averaging-timeout"}},
  {{{"allreduce-timeout", "9s"}}, {"--allreduce-timeout", "--stall-timeout"}},
  {{{"request-timeout", "2m"}}, {"--request-timeout", "--averaging-timeout"}},
  // Beyond the table: what no other option of the reference does.
  {{{"strategy", "local-updates"}, {"low-rank", "2"}}, {"--low-rank", "--strategy collaborative"}},
  {{{"min-compression-ratio", "0.7"}}, {"--min-compression-ratio", "--low-rank"}},
  {{{"average-gradients", "true"}}, {"--average-gradients", "--strategy collaborative"}},
  {{{"averaging-steps-period", "7"}}, {"--averaging-steps-period", "--target-batch-size"}},
  {{{"strategy", "decentralized-sgd"}, {"target-batch-size", "64"}},
   {"--target-batch-size", "--averaging-steps-period"}},
  {{{"average-state-every", "2"}}, {"--average-state-every", "--strategy local-updates"}},
  {{{"groups", "moshpit"}}, {"--groups moshpit", "--strategy collaborative"}},
  {{{"strategy", "local-updates"}, {"groups", "moshpit"}, {"max-epoch-difference", "0"}},
   {"--groups moshpit", "--max-epoch-difference"}},
  {{{"wait-for-peers", "1s"}}, {"--wait-for-peers", "--min-peers"}},
  {{{"optimizer", "adamw"}, {"momentum", "0.9"}}, {"--momentum", "--optimizer"}},
  {{{"precision", "float16"}, {"loss-scale", "off"}}, {"--precision", "--loss-scale"}},
  {{{"kill-after", "5s"}, {"peers", "1"}}, {"--kill-after", "--peers"}},
  {{{"kill-after", "10s"}, {"duration", "10s"}}, {"--kill-after", "--duration"}},
  {{{"join-after", "11s"}, {"duration", "10s"}}, {"--join-after", "--duration"}},
};

} // namespace

TEST(Compatibility, EachContradictionNamesBothOptionsAndAWayOut) {
  for (const auto& one : contradictions) {
    EXPECT_THAT(refusal(one.set), AllOf(HasSubstr(one.named.first), HasSubstr(one.named.second),
                                        ContainsRegex("(leave|lower|raise|use|set) ")));
  }
}

TEST(Compatibility, AShortTimeToAverageShortensTheSearchThatNobodySet) {
  auto search = [](const std::map<std::string, std::string>& set) {
    auto options = resolve({}, {}, flags(set));
    EXPECT_TRUE(options);
    return options ? options->matchmaking_time : milliseconds{0};
  };
  EXPECT_EQ(search({}), 3s);
  EXPECT_EQ(search({{"averaging-timeout", "9s"}}), 3s);
  EXPECT_EQ(search({{"averaging-timeout", "1500ms"}}), 500ms);
  EXPECT_EQ(
    search({{"averaging-timeout", "1500ms"}, {"strategy", "local-updates"}, {"groups", "moshpit"}}),
    500ms);
  EXPECT_EQ(search({{"averaging-timeout", "3s"}, {"matchmaking-time", "2s"}}), 2s);
}

TEST(Compatibility, AShortSearchShortensTheQuestionsThatNobodySet) {
  auto question = [](const std::map<std::string, std::string>& set) {
    auto options = resolve({}, {}, flags(set));
    EXPECT_TRUE(options);
    return options ? options->request_timeout : milliseconds{0};
  };
  EXPECT_EQ(question({}), 2s);
  EXPECT_EQ(question({{"averaging-timeout", "3s"}}), 500ms);
  EXPECT_EQ(question({{"matchmaking-time", "1s"}}), 500ms);
  EXPECT_EQ(question({{"matchmaking-time", "2s"}, {"request-timeout", "2s"}}), 2s)
    << "as it is set";
}
