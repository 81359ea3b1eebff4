#include "runtime/config/values.hpp"

#include <gtest/gtest.h>

#include "runtime/core/nearest.hpp"

using namespace waggle;

TEST(Values, DurationsTakeUnitsAndBareSeconds) {
  EXPECT_EQ(*parse_duration("500ms"), 500ms);
  EXPECT_EQ(*parse_duration("5s"), 5s);
  EXPECT_EQ(*parse_duration("2m"), 120s);
  EXPECT_EQ(*parse_duration("1h"), 3600s);
  EXPECT_EQ(*parse_duration("1.5s"), 1500ms);
  EXPECT_EQ(*parse_duration("7"), 7s);
  EXPECT_EQ(*parse_duration("0"), 0ms);
}

TEST(Values, DurationsRefuseWhatIsNone) {
  for (const char* text :
       {"", "s", "5 s", "5sec", "-1s", "+1s", "inf", "nan", "nans", "1e300h", "5s5s", "0x10"}) {
    auto value = parse_duration(text);
    ASSERT_FALSE(value) << text;
    EXPECT_EQ(value.error().code, ec::bad_config);
    EXPECT_NE(value.error().detail.find("500ms"), std::string::npos)
      << "the sentence does not say what to write: " << text;
  }
}

TEST(Values, TheLongestDurationStillFitsNanoseconds) {
  ASSERT_TRUE(parse_duration("1000000000s"));
  EXPECT_GT(std::chrono::nanoseconds{*parse_duration("1000000000s")}.count(), 0);
  EXPECT_FALSE(parse_duration("1000000001s"));
}

TEST(Values, SizesTakeBinaryUnits) {
  EXPECT_EQ(*parse_bytes("65536"), 65536U);
  EXPECT_EQ(*parse_bytes("12B"), 12U);
  EXPECT_EQ(*parse_bytes("64KiB"), 65536U);
  EXPECT_EQ(*parse_bytes("16MiB"), 16777216U);
  EXPECT_EQ(*parse_bytes("1GiB"), 1073741824U);
  EXPECT_EQ(*parse_bytes("0.5KiB"), 512U);
}

TEST(Values, SizesRefuseUnitsThatMeanTwoThings) {
  for (const char* text : {"", "64K", "64KB", "64kib", "-1", "MiB", "1e16"})
    EXPECT_FALSE(parse_bytes(text)) << text;
}

TEST(Values, WholeNumbersAreNeitherNegativeNorFractions) {
  EXPECT_EQ(*parse_whole("18446744073709551615"), ~std::uint64_t{0});
  for (const char* text : {"", "-1", "+1", "1.0", "1e3", " 1", "1 ", "18446744073709551616", "0x1"})
    EXPECT_FALSE(parse_whole(text)) << text;
}

TEST(Values, RealNumbersAreFinite) {
  EXPECT_DOUBLE_EQ(*parse_real("3e-3"), 0.003);
  EXPECT_DOUBLE_EQ(*parse_real("-2"), -2);
  for (const char* text : {"", "nan", "inf", "-inf", "1e999", "1,5", "x"})
    EXPECT_FALSE(parse_real(text)) << text;
}

TEST(Values, SwitchesTakeTheUsualWords) {
  for (const char* text : {"true", "1", "yes", "on"})
    EXPECT_TRUE(*parse_yes_no(text)) << text;
  for (const char* text : {"false", "0", "no", "off"})
    EXPECT_FALSE(*parse_yes_no(text)) << text;
  EXPECT_FALSE(parse_yes_no("maybe"));
  EXPECT_FALSE(parse_yes_no(""));
}

TEST(Values, AddressListsSkipEmptyEntries) {
  auto list = parse_endpoints("a:1,,[::1]:2,");
  ASSERT_EQ(list->size(), 2U);
  EXPECT_EQ((*list)[0], (endpoint{"a", 1}));
  EXPECT_EQ((*list)[1], (endpoint{"::1", 2}));
  EXPECT_TRUE(parse_endpoints("")->empty());
}

TEST(Values, AWrongAddressInAListIsNamed) {
  auto list = parse_endpoints("a:1,b,c:3");
  EXPECT_EQ(list.error().detail, "names 'b', which is not HOST:PORT: the port is missing");
  EXPECT_EQ(parse_address("b").error().detail, "is not HOST:PORT: the port is missing");
  EXPECT_FALSE(parse_address("b:65536"));
  EXPECT_FALSE(parse_address(":1"));
  EXPECT_FALSE(parse_address("::1:1"));
}

TEST(Values, APageHasAHostAndMayHavePortAndPath) {
  for (auto [text, where, target] : {
         std::array{"http://169.254.169.254/latest/meta-data/spot/instance-action",
                    "169.254.169.254:80", "/latest/meta-data/spot/instance-action"},
         std::array{"http://metadata:8080", "metadata:8080", "/"},
         std::array{"http://[fd00::1]/a?b=c", "[fd00::1]:80", "/a?b=c"},
       }) {
    auto page = parse_url(text);
    ASSERT_TRUE(page) << text << ": " << page.error().detail;
    EXPECT_EQ(to_string(page->where), where);
    EXPECT_EQ(page->target, target);
  }
  for (const auto* text : {"https://host/", "host/path", "http://", "http:///path",
                           "http://host:x/", "http://host/a b", "http://host/\n"})
    EXPECT_FALSE(parse_url(text)) << text;
}

TEST(Nearest, CountsWhatHasToChange) {
  EXPECT_EQ(edit_distance("", ""), 0U);
  EXPECT_EQ(edit_distance("lr", "lr"), 0U);
  EXPECT_EQ(edit_distance("", "abc"), 3U);
  EXPECT_EQ(edit_distance("abc", ""), 3U);
  EXPECT_EQ(edit_distance("kitten", "sitting"), 3U);
  EXPECT_EQ(edit_distance("peers", "pers"), 1U);
}

TEST(Nearest, FindsTheNameThatWasMeant) {
  std::vector<std::string> names{"listen", "linger", "layers"};
  EXPECT_EQ(nearest("lisen", names), "listen");
  EXPECT_EQ(nearest("layer", names), "layers");
  names = {"lr", "part-size", "run-id", "target-batch-size", "min_group_size"};
  EXPECT_EQ(nearest("batch-size", names), "target-batch-size");
  EXPECT_EQ(nearest("run", names), "run-id");
  EXPECT_EQ(nearest("group_size", names), "min_group_size");
  EXPECT_EQ(nearest("art-size", names), "part-size");
  EXPECT_EQ(nearest("x", {}), "");
}
