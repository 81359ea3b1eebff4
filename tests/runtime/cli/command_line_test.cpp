#include "runtime/cli/command_line.hpp"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <optional>
#include <sstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

using namespace waggle;
using ::testing::AllOf, ::testing::HasSubstr, ::testing::StartsWith;

namespace {

/// Captures the output to std::cout and std::cerr.
class captured_streams {
public:
  captured_streams() : cout_(std::cout.rdbuf(out.rdbuf())), cerr_(std::cerr.rdbuf(err.rdbuf())) {}
  ~captured_streams() {
    std::cout.rdbuf(cout_);
    std::cerr.rdbuf(cerr_);
  }
  captured_streams(const captured_streams&) = delete;
  captured_streams& operator=(const captured_streams&) = delete;
  std::ostringstream out;
  std::ostringstream err;

private:
  std::streambuf* cout_;
  std::streambuf* cerr_;
};

class CommandLine : public ::testing::Test {
protected:
  void SetUp() override { forget(); }
  void TearDown() override { forget(); }

  int run(std::vector<const char*> arguments) {
    arguments.insert(arguments.begin(), "waggle");
    ran_.reset();
    captured_streams streams;
    auto keep = [this](const run_options& options) {
      ran_ = options;
      return 7;
    };
    auto code = run_command_line(
      static_cast<int>(arguments.size()), arguments.data(),
      {{"train", "Trains.", "For example.\n", {"run", "peer", "training"}, {}, keep},
       {"ask", "Asks.", "", {"output"}, {{"ADDR", "Whom."}}, keep, true},
       {"config", "Checks.", "", {}, {{"check", ""}, {"FILE", ""}}, keep}});
    out_ = streams.out.str();
    err_ = streams.err.str();
    return code;
  }

  /// The one sentence with which these arguments are refused.
  std::string refusal(std::vector<const char*> arguments) {
    EXPECT_EQ(run(std::move(arguments)), exit_bad_usage);
    EXPECT_FALSE(ran_) << "it ran although it was refused";
    EXPECT_EQ(std::count(err_.begin(), err_.end(), '\n'), 1) << err_;
    EXPECT_THAT(err_, StartsWith("waggle: "));
    EXPECT_EQ(out_, "");
    return err_;
  }

  static void forget() {
    for (const char* name :
         {"WAGGLE_LR", "WAGGLE_CONFIG", "WAGGLE_RUN_IDD", "WAGGLE_JSON", "INITIAL_PEERS"})
      ::unsetenv(name);
  }

  std::optional<run_options> ran_;
  std::string out_;
  std::string err_;
};

} // namespace

TEST_F(CommandLine, RunsTheCommandWithItsOptionsAndReturnsItsCode) {
  EXPECT_EQ(run({"train", "--lr", "0.5", "--listen=127.0.0.1:0", "--initial-peers", "a:1,b:2"}), 7);
  ASSERT_TRUE(ran_) << err_;
  EXPECT_EQ(ran_->lr, 0.5);
  EXPECT_EQ(ran_->listen.front().port, 0);
  EXPECT_EQ(ran_->initial_peers.size(), 2U);
}

TEST_F(CommandLine, ASwitchNeedsNoValue) {
  EXPECT_EQ(run({"train", "--client-mode", "--initial-peers", "a:1"}), 7) << err_;
  EXPECT_TRUE(ran_->client_mode);
  EXPECT_EQ(run({"train", "--client-mode=false"}), 7) << err_;
  EXPECT_FALSE(ran_->client_mode);
}

TEST_F(CommandLine, FlagBeatsEnvironmentBeatsFile) {
  auto pattern = (std::filesystem::temp_directory_path() / "waggle-command-line-XXXXXX").string();
  int handle = ::mkstemp(pattern.data());
  ASSERT_GE(handle, 0);
  ::close(handle);
  std::ofstream{pattern} << "lr = 1\nmicro-batch = 4\n";
  EXPECT_EQ(run({"train", "--config", pattern.c_str()}), 7) << err_;
  EXPECT_EQ(ran_->lr, 1);
  ::setenv("WAGGLE_LR", "2", 1);
  EXPECT_EQ(run({"train", "--config", pattern.c_str()}), 7) << err_;
  EXPECT_EQ(ran_->lr, 2);
  EXPECT_EQ(ran_->micro_batch, 4U);
  EXPECT_EQ(run({"train", "--config", pattern.c_str(), "--lr", "3"}), 7) << err_;
  EXPECT_EQ(ran_->lr, 3);
  ::setenv("WAGGLE_CONFIG", pattern.c_str(), 1);
  EXPECT_EQ(run({"train"}), 7) << err_;
  EXPECT_EQ(ran_->micro_batch, 4U) << "WAGGLE_CONFIG names the run file, too";
  std::filesystem::remove(pattern);
}

TEST_F(CommandLine, AnAnswerAsJsonLeavesTheArgumentAlone) {
  EXPECT_EQ(run({"ask", "--json", "host:1"}), 7) << err_;
  EXPECT_TRUE(ran_->json);
  EXPECT_FALSE(ran_->json_file);
  EXPECT_EQ(ran_->arguments, std::vector<std::string>{"host:1"});
  EXPECT_EQ(run({"ask", "host:1", "--json"}), 7) << err_;
  EXPECT_TRUE(ran_->json);
  EXPECT_EQ(run({"ask", "host:1"}), 7) << err_;
  EXPECT_FALSE(ran_->json);
}

TEST_F(CommandLine, MissingArgumentsAreNamed) {
  EXPECT_THAT(refusal({"ask"}), HasSubstr("waggle ask ADDR"));
  EXPECT_THAT(refusal({"config", "check"}), HasSubstr("waggle config check FILE"));
  EXPECT_THAT(refusal({"config"}), HasSubstr("waggle config check FILE"));
}

TEST_F(CommandLine, UnknownOptionsNameTheNearest) {
  EXPECT_THAT(refusal({"train", "--lisen", "127.0.0.1:0"}), HasSubstr("the nearest is --listen"));
  EXPECT_THAT(refusal({"train", "--lisen=127.0.0.1:0"}),
              HasSubstr("--lisen; the nearest is --listen"));
  EXPECT_THAT(refusal({"train", "--confg", "x"}), HasSubstr("the nearest is --config"));
  EXPECT_THAT(refusal({"config", "--hlep", "x", "y", "z"}), HasSubstr("the nearest is --help"));
}

TEST_F(CommandLine, OptionsOfOtherCommandsAreUnknown) {
  EXPECT_THAT(refusal({"ask", "host:1", "--lr", "1"}), HasSubstr("waggle ask has no option --lr"));
}

TEST_F(CommandLine, UnknownCommandsNameTheNearest) {
  EXPECT_THAT(refusal({"trian"}), HasSubstr("the nearest is 'train'"));
  EXPECT_THAT(refusal({"confog", "check", "x"}), HasSubstr("the nearest is 'config'"));
}

TEST_F(CommandLine, WhatIsTooMuchIsNotIgnored) {
  EXPECT_THAT(refusal({"train", "extra"}), HasSubstr("'extra' is one argument too many"));
  EXPECT_THAT(refusal({"train", "-x"}), HasSubstr("no option -x"));
  EXPECT_THAT(refusal({"ask", "a:1", "b:2"}), HasSubstr("'b:2'"));
  EXPECT_THAT(refusal({"train", "config"}), HasSubstr("'config' is one argument too many"));
  EXPECT_THAT(refusal({"--lr", "3", "train"}), HasSubstr("before the command"));
  EXPECT_THAT(refusal({"train", "--lr", "1", "--lr", "2"}),
              HasSubstr("--lr is given more than once"));
}

TEST_F(CommandLine, MissingValuesAreNamed) {
  EXPECT_THAT(refusal({"train", "--lr"}), HasSubstr("--lr needs a value"));
  EXPECT_THAT(refusal({"train", "--lr", "--epochs"}), HasSubstr("--lr needs a value"));
}

TEST_F(CommandLine, WrongValuesAreSaidWithTheirOption) {
  EXPECT_THAT(refusal({"train", "--lr", "fast"}), HasSubstr("--lr: 'fast' is no finite number"));
  EXPECT_THAT(refusal({"train", "--lr", "-1"}), HasSubstr("between 0 and 1000000"));
  EXPECT_THAT(refusal({"train", "--start-alone", "--data-dir", "d"}),
              HasSubstr("--start-alone needs a value"));
  EXPECT_THAT(refusal({"train", "--listen", "7700"}), HasSubstr("the port is missing"));
  EXPECT_THAT(refusal({"train", "--listen", ""}), HasSubstr("HOST:PORT"));
  EXPECT_THAT(refusal({"train", "--announce", "a:1,b:1,c:1,d:1,e:1"}), HasSubstr("1 to 4"));
  EXPECT_THAT(refusal({"train", "--duration", "5x"}), HasSubstr("write 500ms"));
  EXPECT_THAT(refusal({"train", "--client-mode"}), HasSubstr("--initial-peers"));
}

TEST_F(CommandLine, AWrongEnvironmentIsSaidAsSuch) {
  ::setenv("WAGGLE_LR", "fast", 1);
  EXPECT_THAT(refusal({"train"}), HasSubstr("WAGGLE_LR: 'fast'"));
}

TEST_F(CommandLine, AnUnknownVariableIsAWarning) {
  ::setenv("WAGGLE_RUN_IDD", "x", 1);
  EXPECT_EQ(run({"train"}), 7);
  EXPECT_EQ(err_, "waggle: warning: there is no option for the environment's WAGGLE_RUN_IDD, which "
                  "is ignored; the nearest is WAGGLE_RUN_ID\n");
}

TEST_F(CommandLine, MoreThreadsThanAnyMachineHasCoresAreAWarning) {
  EXPECT_EQ(run({"train", "--threads", "1024"}), 7);
  EXPECT_THAT(err_, AllOf(StartsWith("waggle: warning: "), HasSubstr("--threads")));
  EXPECT_EQ(std::count(err_.begin(), err_.end(), '\n'), 1) << err_;
  EXPECT_EQ(run({"train", "--threads", "1"}), 7);
  EXPECT_EQ(err_, "");
}

TEST_F(CommandLine, AWrongRunFileIsSaidAsSuch) {
  EXPECT_THAT(refusal({"train", "--config", "/nowhere/run.toml"}), HasSubstr("/nowhere/run.toml"));
  EXPECT_THAT(refusal({"train", "--config", "/"}), HasSubstr("folder"));
}

TEST_F(CommandLine, HelpTeachesAndIsNoError) {
  EXPECT_EQ(run({"--help"}), exit_clean);
  EXPECT_THAT(out_, HasSubstr("waggle swarm --peers 4"));
  EXPECT_THAT(out_, HasSubstr("train"));
  EXPECT_EQ(run({"help"}), exit_clean);
  EXPECT_EQ(run({"train", "--help"}), exit_clean);
  EXPECT_THAT(out_, HasSubstr("For example."));
  EXPECT_THAT(out_, HasSubstr("--target-batch-size N [256]"));
  EXPECT_THAT(out_, HasSubstr("--config"));
  EXPECT_THAT(out_, HasSubstr("TIME: 500ms, 5s, 2m or 1h"));
  EXPECT_EQ(run({"ask", "--help"}), exit_clean);
  EXPECT_THAT(out_, HasSubstr("Whom."));
  EXPECT_EQ(err_, "");
}

TEST_F(CommandLine, VersionIsSaid) {
  EXPECT_EQ(run({"--version"}), exit_clean);
  EXPECT_THAT(out_, StartsWith("waggle "));
}

TEST_F(CommandLine, WithoutACommandTheHelpIsShown) {
  EXPECT_EQ(run({}), exit_bad_usage);
  EXPECT_THAT(out_, HasSubstr("train"));
}
