#include "tests/actors/limits_table/limits_table.hpp"

#include <fstream>
#include <sstream>

#include <gtest/gtest.h>

namespace waggle {
namespace {

TEST(LimitsTable, IsTheOneInTheReadme) {
  std::ifstream file{WAGGLE_SOURCE_DIR "/runtime/README.md"};
  std::ostringstream text;
  text << file.rdbuf();
  auto table = to_markdown(limits_table());
  EXPECT_NE(text.str().find(table), std::string::npos)
    << "runtime/README.md, section Limits, should have this list:\n"
    << table;
}

TEST(LimitsTable, EachRowIsComplete) {
  for (const auto& row : limits_table())
    for (const auto* cell : {&row.what, &row.value, &row.why, &row.beyond, &row.metric})
      EXPECT_FALSE(cell->empty()) << row.what;
}

} // namespace
} // namespace waggle
