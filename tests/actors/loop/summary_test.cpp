#include <fstream>

#include <gmock/gmock.h>

#include "actors/program/training_parts.hpp"
#include "tests/support/options_with.hpp"
#include "tests/support/scratch_folder.hpp"

namespace waggle {
namespace {

using ::testing::HasSubstr, ::testing::Not;

TEST(Summary, PromisesToResumeOnlyFromACheckpoint) {
  const testing::scratch_folder data;
  training_status s;
  s.steps = 1;
  auto options = testing::options_with({{"resume", "true"}});
  auto summary = [&] { return summary_of(s, options, data.path()); };
  EXPECT_THAT(summary(), Not(HasSubstr("resumes")));
  std::filesystem::create_directory(data.path() / "checkpoints");
  std::ofstream{data.path() / "checkpoints" / "run.curves"};
  EXPECT_THAT(summary(), Not(HasSubstr("resumes"))) << "the disk was full";
  std::ofstream{data.path() / "checkpoints" / "checkpoint-1-2-00000000.wgl"};
  EXPECT_THAT(summary(), HasSubstr("; the same command resumes from the checkpoints in "));
  options = testing::options_with({{"resume", "false"}});
  EXPECT_THAT(summary(), Not(HasSubstr("resumes")));
}

} // namespace
} // namespace waggle
