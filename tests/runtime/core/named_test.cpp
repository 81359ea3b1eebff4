#include "runtime/core/named.hpp"

#include <gtest/gtest.h>

namespace waggle {
namespace {

struct row {
  std::string_view name;
  std::string_view note;
  bool good = false;
};
constexpr row one{"one", "", true};
constexpr row two{"two", "twice one"};
constexpr row three{"three", "", true};
constexpr row values[] = {one, two, three};
constexpr const row* pointers[] = {&one, &two, &three};

TEST(Named, RowsAreFoundByTheirNamesInBothKindsOfTables) {
  EXPECT_EQ(find_named(values, "two"), &values[1]);
  EXPECT_EQ(find_named(pointers, "two"), &two);
  EXPECT_EQ(find_named(values, "four"), nullptr);
}

TEST(Named, NamesAreListedAsInASentence) {
  EXPECT_EQ(listed(values), "one, two or three");
  EXPECT_EQ(listed(pointers, " and "), "one, two and three");
  EXPECT_EQ(listed(selected(values, &row::good)), "one or three");
  EXPECT_EQ(listed(std::vector<row>{one}), "one");
  EXPECT_EQ(listed(std::vector<row>{}), "");
}

TEST(Named, AHelpTextHasTheNotes) {
  EXPECT_EQ(listed_with_notes(values), "one, two (twice one) or three");
}

} // namespace
} // namespace waggle
