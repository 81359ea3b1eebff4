#include "runtime/cli/text_table.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

using namespace waggle;
using ::testing::ElementsAre;

namespace {

text_table two_peers() {
  text_table table{{{"peer", 8}, {"epoch", 5, true}, {"last round", 0, false, 6}}};
  table.add_row({"01234567", "7", "complete"});
  table.add_row({"89abcdef", "123,456", "failed: timeout"});
  return table;
}

} // namespace

TEST(TextTable, StandsInColumnsThatTheWidestCellWidens) {
  EXPECT_THAT(two_peers().lines(),
              ElementsAre("peer        epoch  last round", "01234567        7  complete",
                          "89abcdef  123,456  failed: timeout"));
}

TEST(TextTable, CutsTheTextAtTheRightToTheWidth) {
  EXPECT_THAT(two_peers().lines(27),
              ElementsAre("peer        epoch  last rou", "01234567        7  complete",
                          "89abcdef  123,456  failed:"));
}

TEST(TextTable, LeavesColumnsOutFromTheRightAndCutsNoNumber) {
  EXPECT_THAT(two_peers().lines(24),
              ElementsAre("peer        epoch", "01234567        7", "89abcdef  123,456"));
  EXPECT_THAT(two_peers().lines(16), ElementsAre("peer", "01234567", "89abcdef"));
}

TEST(TextTable, NoLineIsWiderThanAsked) {
  for (std::size_t width = 1; width < 50; ++width)
    for (const auto& line : two_peers().lines(width)) {
      EXPECT_LE(line.size(), width);
      EXPECT_FALSE(line.empty());
    }
}
