#include "runtime/cli/trainer_program.hpp"

#include <array>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace waggle {
namespace {

bool needed(std::vector<const char*> words) {
  words.insert(words.begin(), "waggle");
  return needs_trainer_program(static_cast<int>(words.size()), words.data());
}

TEST(TrainerProgram, TrainsAndMeasuresTraining) {
  EXPECT_TRUE(needed({"train"}));
  EXPECT_TRUE(needed({"train", "--help"}));
  EXPECT_TRUE(needed({"bench", "train"}));
  EXPECT_TRUE(needed({"bench", "--steps", "64", "train"}));
  EXPECT_TRUE(needed({"bench", "loop"}));
}

TEST(TrainerProgram, IsNotNeededForAnythingElse) {
  EXPECT_FALSE(needed({}));
  EXPECT_FALSE(needed({"--help"}));
  EXPECT_FALSE(needed({"node"}));
  EXPECT_FALSE(needed({"node", "--run-id", "train"}));
  EXPECT_FALSE(needed({"bench", "allreduce"}));
}

/// What a command of the shell writes.
std::string output_of(const std::string& command) {
  std::unique_ptr<FILE, int (*)(FILE*)> pipe{::popen((command + " 2>&1").c_str(), "r"), ::pclose};
  std::string text;
  std::array<char, 4096> piece;
  while (pipe && std::fgets(piece.data(), piece.size(), pipe.get()) != nullptr)
    text += piece.data();
  return text;
}

// Wherever the option comes from. The program waggle-trainer may not be there.
TEST(TrainerProgram, PlansForAModelThatAnyOptionNames) {
  using ::testing::AnyOf;
  using ::testing::HasSubstr;
  const std::string plan = "'" WAGGLE_PROGRAM "' plan";
  auto counts = AnyOf(HasSubstr("parameters are trained"), HasSubstr("there is no /"));
  EXPECT_THAT(output_of(plan + " --model mlp"), counts);
  EXPECT_THAT(output_of("WAGGLE_MODEL=mlp " + plan), counts);
  EXPECT_THAT(output_of("WAGGLE_STEP_TIME=measure WAGGLE_MODEL=mlp " + plan + " --values 1e6"),
              AnyOf(HasSubstr("mlp: passes of"), HasSubstr("there is no /")));
  for (const auto* of_numbers : {" --values 1e6", " --model mlp --values 1e6"})
    EXPECT_THAT(output_of(plan + of_numbers), ::testing::StartsWith("strategy and codec"));
}

TEST(TrainerProgram, TheProgramItselfLoadsNoLibTorch) {
  auto libraries = output_of("ldd '" WAGGLE_PROGRAM "'");
  EXPECT_THAT(libraries, ::testing::HasSubstr("libc.so"));
  EXPECT_THAT(libraries, ::testing::Not(::testing::HasSubstr("torch")));
}

} // namespace
} // namespace waggle
