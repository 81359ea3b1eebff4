#include "runtime/cli/readable.hpp"

#include <limits>

#include <gtest/gtest.h>

using namespace waggle;

namespace {

constexpr double not_a_number = std::numeric_limits<double>::quiet_NaN();
constexpr double infinite = std::numeric_limits<double>::infinity();

} // namespace

TEST(Readable, CountsAreGroupedInThousands) {
  EXPECT_EQ(readable_count(0), "0");
  EXPECT_EQ(readable_count(999), "999");
  EXPECT_EQ(readable_count(5120), "5,120");
  EXPECT_EQ(readable_count(1234567), "1,234,567");
  EXPECT_EQ(readable_count(~std::uint64_t{0}), "18,446,744,073,709,551,615");
}

TEST(Readable, NumbersHaveFourDigitsThatMatter) {
  EXPECT_EQ(readable_number(2.34123456789012), "2.341");
  EXPECT_EQ(readable_number(0.003), "0.003");
  EXPECT_EQ(readable_number(5119.7), "5,120");
  EXPECT_EQ(readable_number(-1234567.8), "-1,234,568");
  EXPECT_EQ(readable_number(0.00000015), "1.5e-07");
  EXPECT_EQ(readable_number(1e300), "1e+300");
  EXPECT_EQ(readable_number(not_a_number), "-");
  EXPECT_EQ(readable_number(infinite), "-");
}

TEST(Readable, BytesHaveAUnit) {
  EXPECT_EQ(readable_bytes(0), "0 B");
  EXPECT_EQ(readable_bytes(812), "812 B");
  EXPECT_EQ(readable_bytes(12'300'000), "12.3 MB");
  EXPECT_EQ(readable_bytes(999'960), "1.0 MB") << "not 1000.0 kB";
  EXPECT_EQ(readable_bytes(4.06e9), "4.1 GB");
  EXPECT_EQ(readable_bytes(-1), "-");
  EXPECT_EQ(readable_bytes(not_a_number), "-");
  EXPECT_EQ(readable_bytes(1e300), "-");
}

TEST(Readable, DurationsHaveTheTwoUnitsThatMatter) {
  EXPECT_EQ(readable_duration(0.42), "0.4 s");
  EXPECT_EQ(readable_duration(9.97), "10 s");
  EXPECT_EQ(readable_duration(59.7), "1 m 0 s");
  EXPECT_EQ(readable_duration(200), "3 m 20 s");
  EXPECT_EQ(readable_duration(3600 * 5 + 60 * 4 + 3), "5 h 4 m");
  EXPECT_EQ(readable_duration(86400 * 2 + 3600 * 7), "2 d 7 h");
  EXPECT_EQ(readable_duration(-3), "-");
  EXPECT_EQ(readable_duration(infinite), "-");
  EXPECT_EQ(readable_duration(1e300), "-");
}

TEST(Readable, LossesHaveThreeDecimals) {
  EXPECT_EQ(readable_loss(2.3), "2.300");
  EXPECT_EQ(readable_loss(not_a_number), "-");
  EXPECT_EQ(readable_loss(1e30), "1e+30") << "a run that diverges keeps its columns";
}

TEST(Printable, LeavesNothingThatDrivesATerminal) {
  EXPECT_EQ(printable("training", 64), "training");
  EXPECT_EQ(printable("\x1b[2J\r\n\x7f", 64), "\\x1b[2J\\x0d\\x0a\\x7f");
  EXPECT_EQ(printable("\xc2\x9b", 64), "\\xc2\\x9b");
  EXPECT_EQ(printable(std::string_view{"a\0b", 3}, 64), "a\\x00b");
}

TEST(Printable, IsNeverLongerThanAskedFor) {
  EXPECT_EQ(printable("abcdefgh", 8), "abcdefgh");
  EXPECT_EQ(printable("abcdefghi", 8), "abcde...");
  EXPECT_EQ(printable(std::string(1000, '\n'), 10).size(), 10U);
}

TEST(ControlCharacters, AreEscapedAndTextIsKept) {
  EXPECT_EQ(
    without_control_characters("/home/gr\xc3\xbc\xc3\x9f/\xe2\x82\xac \xf0\x9f\x90\x9d", 99),
    "/home/gr\xc3\xbc\xc3\x9f/\xe2\x82\xac \xf0\x9f\x90\x9d");
  EXPECT_EQ(without_control_characters("one\ntwo\x1b[0m", 99), "one\\x0atwo\\x1b[0m");
  EXPECT_EQ(without_control_characters("\xc2\x9b", 99), "\\xc2\\x9b")
    << "U+009B begins an escape sequence";
}

TEST(ControlCharacters, TextThatIsShownBackwardsIsEscaped) {
  EXPECT_EQ(without_control_characters("a\xe2\x80\xae"
                                       "b",
                                       99),
            "a\\xe2\\x80\\xaeb")
    << "U+202E";
  EXPECT_EQ(without_control_characters("\xe2\x81\xa7", 99), "\\xe2\\x81\\xa7") << "U+2067";
  EXPECT_EQ(without_control_characters("\xe2\x80\xa8", 99), "\\xe2\\x80\\xa8")
    << "U+2028 ends a line";
  EXPECT_EQ(without_control_characters("\xe2\x80\x9c", 99), "\xe2\x80\x9c") << "a quotation mark";
}

TEST(ControlCharacters, WhatIsNoUtf8IsEscaped) {
  EXPECT_EQ(without_control_characters("\x9b", 99), "\\x9b");
  EXPECT_EQ(without_control_characters("\xe2\x82", 99), "\\xe2\\x82") << "truncated";
  EXPECT_EQ(without_control_characters("\xc0\x8a", 99), "\\xc0\\x8a")
    << "an overlong encoding of a line end";
  EXPECT_EQ(without_control_characters("\xe0\x82\x9b", 99), "\\xe0\\x82\\x9b")
    << "an overlong encoding of U+009B";
  EXPECT_EQ(without_control_characters("\xed\xa0\x80", 99), "\\xed\\xa0\\x80") << "a surrogate";
  EXPECT_EQ(without_control_characters("\xf4\x90\x80\x80", 99), "\\xf4\\x90\\x80\\x80");
}

TEST(ControlCharacters, LongTextsAreCutBetweenCharacters) {
  EXPECT_EQ(without_control_characters("abcdef", 4), "abcd... (2 bytes more)");
  EXPECT_EQ(without_control_characters("abc\xc3\xbc"
                                       "d",
                                       4),
            "abc\xc3\xbc... (1 bytes more)");
}
