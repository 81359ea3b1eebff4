// User-written training loops as peers: in a run with `waggle train`, and compared with the plain
// loop.

#include <regex>

#include <gmock/gmock.h>

#include "tests/processes/checkpoints.hpp"
#include "tests/processes/peer.hpp"

namespace waggle::testing {
namespace {

using ::testing::HasSubstr;

/// A complete run with the model of examples/bytes.hpp.
constexpr std::uint64_t epochs = 200;
constexpr std::uint64_t target = 64;
constexpr std::uint64_t batch = 8;
const auto same_run = words("--run-id loops --model mlp --layers 1 --width 32 --context 16",
                            {"--epochs", std::to_string(epochs)});

/// The contents of the last log line of a loop's peer.
struct ending {
  std::uint64_t epoch = 0;
  bool last = false;
  std::uint64_t offered = 0;
  std::uint64_t used = 0;
  std::uint64_t dropped = 0;
  std::uint64_t rounds = 0;
  std::string parameters;
};
std::optional<ending> ending_in(const std::string& log) {
  static const std::regex line{"ended at epoch (\\d+)( \\(the last\\))?: (\\d+) samples offered, "
                               "(\\d+) used, (\\d+) dropped(?:, \\d+ kept for the next start)?; "
                               "(\\d+) rounds; parameters ([0-9a-f]+)"};
  std::smatch found;
  if (!std::regex_search(log, found, line))
    return std::nullopt;
  return ending{std::stoull(found[1]),
                found[2].matched,
                std::stoull(found[3]),
                std::stoull(found[4]),
                std::stoull(found[5]),
                std::stoull(found[6]),
                found[7]};
}

class LoopsOfUsers : public ::testing::Test {
protected:
  std::unique_ptr<program> start(const std::string& name, const std::string& through,
                                 std::vector<std::string> more = {}) const {
    std::vector<std::string> command{WAGGLE_EXAMPLE_SWARM};
    auto own =
      words("--run loops --steps 1000000",
            {"--data-dir", (folder.path() / name).string(), "--target", std::to_string(target),
             "--epochs", std::to_string(epochs), "--batch", std::to_string(batch)});
    command.insert(command.end(), own.begin(), own.end());
    if (!through.empty())
      command.insert(command.end(), {"--peer", through});
    command.insert(command.end(), more.begin(), more.end());
    return std::make_unique<program>(folder, name, command);
  }
  std::unique_ptr<peer> train(std::vector<std::string> more,
                              std::vector<std::string> due = {"--target-batch-size",
                                                              std::to_string(target)}) const {
    std::vector<std::string> command{"train"};
    for (const auto& some : {same_run, due, more})
      command.insert(command.end(), some.begin(), some.end());
    return std::make_unique<peer>(folder, "train", command);
  }
  scratch_folder folder;
};

/// No pass begins before all three peers are there: a loop may need longer to start than the run
/// takes without it.
const std::vector<std::string> loops_wait{"--more", "min-peers=3"};
const std::vector<std::string> train_waits{"--min-peers", "3"};

/// Further options, of the example and of `waggle train`.
struct further {
  const char* name;
  std::vector<std::string> of_loops;
  std::vector<std::string> of_train;
};

std::vector<std::string> joined(std::vector<std::string> some, const std::vector<std::string>& more,
                                const std::vector<std::string>& wait = {}) {
  some.insert(some.end(), more.begin(), more.end());
  some.insert(some.end(), wait.begin(), wait.end());
  return some;
}

const further delayed{"DelayedSteps", {"--more", "delay-optimizer-step=true"}, {}};

class EqualLoops : public LoopsOfUsers, public ::testing::WithParamInterface<further> {};

INSTANTIATE_TEST_SUITE_P(
  Options, EqualLoops,
  ::testing::Values(further{"Plain", {}, {}}, delayed,
                    further{"DelayedStepsAndGradients",
                            {"--more", "delay-optimizer-step=true", "--more",
                             "delay-grad-averaging=true"},
                            {"--delay-grad-averaging", "true"}},
                    further{"InHostMemory", {"--more", "offload-optimizer=true"}, {}}),
  [](const auto& info) { return std::string{info.param.name}; });

TEST_P(EqualLoops, TwoOfThemAndWaggleTrainEndARunWithEqualParameters) {
  auto first = train(joined({"--step-interval", "30ms", "--micro-batch", "8", "--linger", "5m"},
                            GetParam().of_train, train_waits));
  auto where = first->await_address();
  auto second =
    start("second", to_string(where), joined({"--seed", "2"}, GetParam().of_loops, loops_wait));
  auto third =
    start("third", to_string(where), joined({"--seed", "3"}, GetParam().of_loops, loops_wait));
  EXPECT_EQ(second->await_exit(150s), 0) << second->log() << first->log();
  EXPECT_EQ(third->await_exit(60s), 0) << third->log() << first->log();
  auto a = ending_in(second->log());
  auto b = ending_in(third->log());
  ASSERT_TRUE(a && b) << second->log() << third->log();
  nlohmann::json ours;
  ASSERT_TRUE(eventually([&] {
    ours = status_of(where);
    return ours.is_object() && ours.value("epoch", 0U) == epochs;
  }))
    << ours;

  for (const auto& each : {*a, *b}) {
    EXPECT_EQ(each.epoch, epochs);
    EXPECT_TRUE(each.last);
    EXPECT_EQ(each.parameters, ours["parameters"].get<std::string>());
    EXPECT_GT(each.used, 0U);
    EXPECT_GE(each.offered, each.used + each.dropped);
    EXPECT_LT(each.offered, each.used + each.dropped + target) << "one gradient is kept at a stop";
  }
  // Every update has at least the target number of samples, and the peers count each of them as
  // used. It exceeds the target at most by the passes that each peer was computing.
  auto used = a->used + b->used + ours["samples"]["used"].get<std::uint64_t>();
  EXPECT_GT(ours["samples"]["used"].get<std::uint64_t>(), 0U);
  EXPECT_GE(used, epochs * target) << ours;
  EXPECT_LE(used, epochs * (target + 3 * 2 * batch)) << ours;
  first->signal(SIGTERM);
  EXPECT_EQ(first->await_exit(), 0) << first->log();
}

TEST_F(LoopsOfUsers, DelayedOnesThatAreKilledReturnAndEndWithEqualParameters) {
  auto first = train({"--step-interval", "30ms", "--micro-batch", "8", "--linger", "5m"});
  auto where = first->await_address();
  auto second = start("second", to_string(where), joined({"--seed", "2"}, delayed.of_loops));
  auto third = start("third", to_string(where), joined({"--seed", "3"}, delayed.of_loops));
  for (int kills = 0; kills < 3; ++kills) {
    ASSERT_TRUE(
      eventually([&] { return second->log().find("in step at epoch") != std::string::npos; }))
      << second->log();
    second->signal(SIGKILL);
    ASSERT_TRUE(eventually([&] { return !second->runs(); }));
    second = start("second", to_string(where), joined({"--seed", "2"}, delayed.of_loops));
  }
  std::string parameters;
  for (auto* each : {second.get(), third.get()}) {
    EXPECT_EQ(each->await_exit(150s), 0) << each->log() << first->log();
    auto end = ending_in(each->log());
    ASSERT_TRUE(end) << each->log();
    EXPECT_TRUE(end->last);
    EXPECT_EQ(end->offered, end->used + end->dropped);
    EXPECT_EQ(end->parameters, parameters.empty() ? end->parameters : parameters);
    parameters = end->parameters;
  }
}

std::size_t count_of(const std::string& text, const std::string& what) {
  std::size_t count = 0;
  for (auto at = text.find(what); at != std::string::npos; at = text.find(what, at + 1))
    ++count;
  return count;
}

/// LibTorch rounds updates otherwise without AVX2, and here takes the machine for one without.
TEST_F(LoopsOfUsers, OfAnOlderProcessorTrainsWithTheOthersAndNobodyDownloads) {
#if defined(__x86_64__)
  if (!__builtin_cpu_supports("avx2"))
#endif
    GTEST_SKIP() << "this machine cannot be two processors";
  auto first =
    train(joined({"--step-interval", "20ms", "--micro-batch", "8", "--linger", "5m"}, train_waits));
  auto where = to_string(first->await_address());
  auto second = start("second", where, joined({"--seed", "2"}, loops_wait));
  ::setenv("ATEN_CPU_CAPABILITY", "default", 1);
  auto older = start("older", where, joined({"--seed", "3"}, loops_wait));
  ::unsetenv("ATEN_CPU_CAPABILITY");
  for (auto* each : {second.get(), older.get()})
    EXPECT_EQ(each->await_exit(150s), 0) << each->log() << first->log();
  first->signal(SIGTERM);
  EXPECT_EQ(first->await_exit(), 0) << first->log();
  for (const auto& log : {first->log(), second->log(), older->log()}) {
    EXPECT_EQ(count_of(log, "rounds updates differently"), 1U) << log;
    EXPECT_EQ(count_of(log, "differ from ours"), 0U) << log;
    EXPECT_LE(count_of(log, "downloaded the state of epoch"), 1U) << log;
  }
  auto a = ending_in(second->log());
  auto b = ending_in(older->log());
  ASSERT_TRUE(a && b);
  EXPECT_NE(a->parameters, b->parameters) << "LibTorch has not taken it for an older one";
  EXPECT_LT(b->offered, b->used + b->dropped + target);
  auto expected = last_checkpoint(folder.path() / "train");
  auto actual = last_checkpoint(folder.path() / "older");
  EXPECT_EQ(actual.epoch, epochs);
  EXPECT_LE(relative_distance(expected.parameters, actual.parameters), 1e-5);
}

/// The relative distance between the parameters of two peers that average them. They end with what
/// they learned during the last round, and were at most 0.0014 apart; 0.008 without merging what
/// they average (--alpha 1e-9).
constexpr double distance_max = 0.004;

class AveragingLoops : public LoopsOfUsers, public ::testing::WithParamInterface<further> {};

INSTANTIATE_TEST_SUITE_P(
  Options, AveragingLoops,
  ::testing::Values(
    further{"Plain", {}, {}},
    further{"Gradients", {"--more", "average-gradients=true"}, {"--average-gradients", "true"}},
    further{"InHostMemory", {"--more", "offload-optimizer=true"}, {}}),
  [](const auto& info) { return std::string{info.param.name}; });

TEST_P(AveragingLoops, AverageTheirParametersWithThoseOfWaggleTrain) {
  auto first = train(joined({"--strategy", "local-updates", "--step-interval", "5ms",
                             "--micro-batch", "8", "--linger", "5m"},
                            GetParam().of_train, train_waits));
  auto where = to_string(first->await_address());
  auto second =
    start("second", where,
          joined({"--seed", "2", "--strategy", "local-updates"}, GetParam().of_loops, loops_wait));
  auto third =
    start("third", where,
          joined({"--seed", "3", "--strategy", "local-updates"}, GetParam().of_loops, loops_wait));
  EXPECT_EQ(second->await_exit(150s), 0) << second->log() << first->log();
  EXPECT_EQ(third->await_exit(60s), 0) << third->log() << first->log();
  for (const auto* each : {second.get(), third.get()}) {
    auto end = ending_in(each->log());
    ASSERT_TRUE(end) << each->log();
    EXPECT_EQ(end->epoch, epochs);
    EXPECT_TRUE(end->last);
    EXPECT_GT(end->rounds, 5U);
    EXPECT_EQ(end->offered, end->used + end->dropped);
    // Of the gradient that belongs to the state before a download, and no other.
    EXPECT_LT(end->dropped, 10 * batch) << each->log();
  }
  auto status = status_of(*first->address());
  expect_samples_accounted(*first, batch);
  EXPECT_LT(status.value("loss", 1e9), 0.9 * status.value("first_loss", 0.0)) << status;
  first->signal(SIGTERM);
  EXPECT_EQ(first->await_exit(), 0) << first->log();
  auto expected = last_checkpoint(folder.path() / "train");
  EXPECT_EQ(expected.epoch, epochs);
  for (const char* name : {"second", "third"}) {
    auto actual = last_checkpoint(folder.path() / name);
    EXPECT_EQ(actual.epoch, epochs);
    EXPECT_LE(relative_distance(expected.parameters, actual.parameters), distance_max) << name;
  }
}

/// All know the node only, and one of the loops accepts no connections.
TEST_F(LoopsOfUsers, OfDilocoEndWithEqualAnchorsAfterAKillAndAJoin) {
  const std::vector<std::string> rounds{"--strategy", "diloco:steps=10"};
  peer node{folder, "node", {"node", "--run-id", "loops"}};
  auto through = to_string(node.await_address());
  auto first = train(joined({"--initial-peers", through, "--step-interval", "10ms", "--micro-batch",
                             "8", "--linger", "5m"},
                            rounds, train_waits),
                     {});
  auto where = first->await_address();
  auto of_loops = joined(rounds, {"--target", "256", "--more", "step-interval=10ms"});
  auto killed = start("killed", through, joined(of_loops, loops_wait, {"--seed", "2"}));
  auto client = start("client", through,
                      joined(of_loops, loops_wait, {"--more", "client-mode=true", "--seed", "3"}));
  ASSERT_TRUE(eventually([&] { return epoch_of(where) >= 20; }, 150s)) << first->log();
  killed->signal(SIGKILL);
  auto joiner = start("joiner", through, joined(of_loops, {"--seed", "4"}));
  ASSERT_TRUE(eventually([&] { return epoch_of(where) == epochs; }, 150s)) << first->log();
  auto ours = status_of(where)["parameters"].get<std::string>();
  EXPECT_FALSE(ours.empty());
  for (auto* each : {client.get(), joiner.get()}) {
    EXPECT_EQ(each->await_exit(60s), 0) << each->log();
    auto end = ending_in(each->log());
    ASSERT_TRUE(end) << each->log();
    EXPECT_TRUE(end->last);
    EXPECT_GT(end->used, 0U);
    EXPECT_GT(end->rounds, 5U);
    EXPECT_EQ(end->parameters, ours);
  }
}

TEST_F(LoopsOfUsers, ALoopThatIsAnotherModelIsRefusedWithBothValues) {
  auto first = train({"--weight-decay", "0.5"});
  auto where = to_string(first->await_address());
  auto second = start("second", where);
  EXPECT_EQ(second->await_exit(60s), 1) << second->log();
  EXPECT_THAT(second->log(), HasSubstr("refused by all initial peers: weight-decay is 0 here and "
                                       "0.5 there"));
}

TEST_F(LoopsOfUsers, ALoopThatIsKilledLeavesTheOthersAtWork) {
  auto first = train({"--step-interval", "20ms", "--micro-batch", "8", "--linger", "5m"});
  auto where = first->await_address();
  auto second = start("second", to_string(where));
  ASSERT_TRUE(
    eventually([&] { return second->log().find("in step at epoch") != std::string::npos; }))
    << second->log();
  second->signal(SIGKILL);
  auto then = epoch_of(where);
  EXPECT_TRUE(eventually([&] { return epoch_of(where) >= std::min(then + 20, epochs); }, 150s))
    << first->log();
}

TEST_F(LoopsOfUsers, ThePlainLoopRuns) {
  program plain{folder, "plain", {WAGGLE_EXAMPLE_PLAIN, "--steps", "300"}};
  EXPECT_EQ(plain.await_exit(120s), 0) << plain.log();
  EXPECT_THAT(plain.log(), HasSubstr("step 200: loss "));
}

// -- the difference between the two loops ---------------------------------------------------------

/// The statements of a file: each ends with ';', '{' or '}', without comments and spaces; for( … ;
/// … ; … ) is one statement. `#include` lines are separate.
struct source {
  std::vector<std::string> statements;
  std::vector<std::string> includes;
};
source read_source(const std::filesystem::path& file) {
  source out;
  std::ifstream in{file};
  std::string code;
  for (std::string line; std::getline(in, line);) {
    if (line.starts_with("#include"))
      out.includes.push_back(line);
    else
      code += line.substr(0, line.find("//")) + " ";
  }
  std::string now;
  int round = 0;
  int braces = 0; // open braces of initializers
  auto end = [&] {
    if (!now.empty())
      out.statements.push_back(std::exchange(now, {}));
  };
  for (std::size_t i = 0; i < code.size(); ++i) {
    char c = code[i];
    if (std::isspace(static_cast<unsigned char>(c)) != 0)
      continue;
    now += c;
    round += c == '(' ? 1 : c == ')' ? -1 : 0;
    if (c == '{' && round == 0) {
      // A block follows ')' or "try" and a space; anything else is an initializer.
      auto before = code.find_last_not_of(' ', i - 1);
      bool block = code[before] == ')' || code.compare(before - 2, 3, "try") == 0;
      if (!block)
        ++braces;
      else if (braces == 0)
        end();
    } else if (c == '}' && round == 0) {
      if (braces > 0)
        --braces;
      else
        end();
    } else if (c == ';' && round == 0 && braces == 0) {
      end();
    }
  }
  end();
  return out;
}

/// The numbers of elements of `a` and of `b` that are not in their longest common subsequence.
std::pair<std::size_t, std::size_t> changed(const std::vector<std::string>& a,
                                            const std::vector<std::string>& b) {
  std::vector<std::vector<std::size_t>> common(a.size() + 1,
                                               std::vector<std::size_t>(b.size() + 1));
  for (std::size_t i = 0; i < a.size(); ++i)
    for (std::size_t j = 0; j < b.size(); ++j)
      common[i + 1][j + 1] =
        a[i] == b[j] ? common[i][j] + 1 : std::max(common[i][j + 1], common[i + 1][j]);
  return {a.size() - common.back().back(), b.size() - common.back().back()};
}

TEST(Examples, TheLoopOfASwarmDiffersFromThePlainOneInThreeStatements) {
  std::filesystem::path examples{WAGGLE_SOURCE_DIR "/examples"};
  auto plain = read_source(examples / "plain.cpp");
  auto swarm = read_source(examples / "swarm.cpp");
  ASSERT_GT(plain.statements.size(), 12U);
  auto [before, after] = changed(plain.statements, swarm.statements);
  EXPECT_EQ(before, 2U);
  EXPECT_EQ(after, 3U) << ::testing::PrintToString(swarm.statements);
  EXPECT_EQ(changed(plain.includes, swarm.includes), (std::pair<std::size_t, std::size_t>{0, 1}));
}

/// Every line of the diff in the README is a line of the corresponding file.
TEST(Examples, TheReadmeShowsTheDifferenceAsItIs) {
  std::filesystem::path examples{WAGGLE_SOURCE_DIR "/examples"};
  std::istringstream readme{content_of(examples / "README.md")};
  auto plain = content_of(examples / "plain.cpp");
  auto swarm = content_of(examples / "swarm.cpp");
  bool inside = false;
  std::size_t lines = 0;
  for (std::string line; std::getline(readme, line);) {
    if (line.starts_with("```")) {
      inside = line == "```diff";
    } else if (inside && (line.starts_with("+") || line.starts_with("-"))) {
      const auto& file = line.front() == '+' ? swarm : plain;
      EXPECT_NE(file.find("\n" + line.substr(1) + "\n"), std::string::npos) << line;
      ++lines;
    }
  }
  EXPECT_GT(lines, 10U);
}

} // namespace
} // namespace waggle::testing
