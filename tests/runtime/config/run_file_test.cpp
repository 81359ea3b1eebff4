#include <filesystem>
#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/config/options.hpp"
#include "tests/support/scratch_folder.hpp"

using namespace waggle;
using ::testing::EndsWith, ::testing::HasSubstr;

namespace {

class RunFile : public ::testing::Test {
protected:
  result<settings> read(const std::string& text) {
    auto file = folder_ / "run.toml";
    std::ofstream{file} << text;
    return from_file(file);
  }
  std::string refusal(const std::string& text) {
    auto found = read(text);
    if (found)
      return {};
    EXPECT_EQ(found.error().code, ec::bad_config);
    EXPECT_EQ(found.error().detail.find('\n'), std::string::npos) << found.error().detail;
    return found.error().detail;
  }

  waggle::testing::scratch_folder scratch_;
  const std::filesystem::path& folder_ = scratch_.path();
};

} // namespace

TEST_F(RunFile, TakesKeysAtTopLevelAndInTablesInBothSpellings) {
  auto found =
    read("run-id = \"demo\"\n[peer]\ninitial_peers = [\"a:1\", \"b:2\"]\n[training]\nlr = 0.25\n"
         "target_batch_size = 64\nresume = false\n[training.model]\nwidth = 32\n");
  auto options = resolve(*found, {}, {});
  EXPECT_EQ(options->run_id, "demo");
  EXPECT_EQ(options->initial_peers, (std::vector<endpoint>{{"a", 1}, {"b", 2}}));
  EXPECT_EQ(options->lr, 0.25);
  EXPECT_EQ(options->target_batch_size, 64U);
  EXPECT_FALSE(options->resume);
  EXPECT_EQ(options->width, 32U);
}

TEST_F(RunFile, TakesDurationsAndSizesAsTextOrNumbers) {
  auto found = read(
    "averaging-timeout = \"30s\"\nstall-timeout = 2\npart-size = 65536\nmatchmaking-time = 0.5\n");
  auto options = resolve(*found, {}, {});
  EXPECT_EQ(options->averaging_timeout, 30s);
  EXPECT_EQ(options->averaging.round.stall_timeout, 2s);
  EXPECT_EQ(options->part_bytes, 65536U);
  EXPECT_EQ(options->matchmaking.min_matchmaking_time, 500ms);
}

TEST_F(RunFile, ReportsTheSourceOfEachValue) {
  EXPECT_THAT(read("\n\nlr = 1\n")->at("lr").source, EndsWith("run.toml:3"));
}

TEST_F(RunFile, RefusesUnknownKeysWithPlaceAndNearest) {
  auto why = refusal("lr = 1\n[training]\nmicro-bach = 4\n");
  EXPECT_THAT(why, HasSubstr("run.toml:3"));
  EXPECT_THAT(why, HasSubstr("'micro-batch'"));
}

TEST_F(RunFile, RefusesKeysThatAreSetTwice) {
  // toml11 detects duplicates within a table; across tables it would be unclear which value counts.
  EXPECT_THAT(refusal("lr = 1\n[training]\nlr = 2\n"), HasSubstr("second time"));
  EXPECT_THAT(refusal("part-size = 65536\npart_size = 65536\n"), HasSubstr("second time"));
  EXPECT_NE(refusal("lr = 1\nlr = 2\n"), "");
}

TEST_F(RunFile, RefusesWhatIsNotTomlWithTheLine) {
  auto why = refusal("lr = 1\nx = = 3\n");
  EXPECT_THAT(why, HasSubstr("run.toml:2"));
  EXPECT_THAT(why, HasSubstr("not TOML"));
}

TEST_F(RunFile, TakesUtf8AndRefusesOtherTextWithTheLine) {
  auto found = read("data-dir = 'caf\u00e9 \u65e5\u672c'\n");
  EXPECT_EQ(found->at("data-dir").value, "caf\u00e9 \u65e5\u672c");
  for (const char* bytes : {"\xe9", "\xff", "\xc3", "\xed\xa0\x80", "\xc0\xaf"})
    for (const char* quotes : {"'", "\"", "'\'\'", "\"\"\"", "#"}) {
      auto why =
        refusal(std::string{"lr = 1\ndata-dir = "} + quotes + "caf" + bytes + quotes + "\n");
      EXPECT_THAT(why, HasSubstr("run.toml:2")) << quotes;
      EXPECT_THAT(why, HasSubstr("UTF-8")) << quotes;
    }
}

TEST_F(RunFile, RefusesFilesThatAreNotThereAndFolders) {
  EXPECT_THAT(from_file(folder_ / "none.toml").error().detail, HasSubstr("does not exist"));
  auto folder = from_file(folder_);
  EXPECT_THAT(folder.error().detail, HasSubstr("is a folder"));
}

TEST_F(RunFile, AnEmptyFileSetsNothing) {
  EXPECT_TRUE(read("# nothing\n")->empty());
}
