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

TEST(TrainerProgram, PlansForAModelAndMeasuresItsPasses) {
  auto more = [](std::vector<const char*> words) {
    words.insert(words.begin(), {"waggle", "plan"});
    return does_more_as_trainer_program(static_cast<int>(words.size()), words.data());
  };
  // It is asked from the folder of this test's program, which may have no waggle-trainer.
  bool beside = does_more_as_trainer_program(2, std::array{"waggle", "config"}.data());
  EXPECT_EQ(more({"--model", "mlp"}), beside);
  EXPECT_EQ(more({"--values", "1e9", "--step-time", "measure"}), beside);
  EXPECT_EQ(more({"--values=1e9", "--step-time=measure"}), beside);
  EXPECT_FALSE(more({"--values", "1e9"}));
  EXPECT_FALSE(more({"127.0.0.1:7700", "--values=1e9", "--step-time", "20ms"}));
}

TEST(TrainerProgram, TheProgramItselfLoadsNoLibTorch) {
  std::unique_ptr<FILE, int (*)(FILE*)> pipe{::popen("ldd '" WAGGLE_PROGRAM "'", "r"), ::pclose};
  ASSERT_TRUE(pipe);
  std::string libraries;
  std::array<char, 4096> piece;
  while (std::fgets(piece.data(), piece.size(), pipe.get()) != nullptr)
    libraries += piece.data();
  EXPECT_THAT(libraries, ::testing::HasSubstr("libc.so"));
  EXPECT_THAT(libraries, ::testing::Not(::testing::HasSubstr("torch")));
}

} // namespace
} // namespace waggle
