#include "actors/commands/join_line.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

using namespace waggle;
using ::testing::HasSubstr;
using ::testing::Not;

TEST(ShellWord, QuotesOnlyWhatASplitOrAShellWouldChange) {
  EXPECT_EQ(shell_word("a-b_c.d/e:1,2"), "a-b_c.d/e:1,2");
  EXPECT_EQ(shell_word(""), "''");
  EXPECT_EQ(shell_word("a b"), "'a b'");
  EXPECT_EQ(shell_word("$(rm)"), "'$(rm)'");
  EXPECT_EQ(shell_word("it's"), R"('it'\''s')");
  EXPECT_EQ(shell_word("[::1]:1"), "'[::1]:1'");
  EXPECT_EQ(shell_word("a\nb"), "'a\nb'");
}

TEST(JoinLine, NamesRunAndAnnouncedAddress) {
  run_options options;
  options.run_id = "demo";
  EXPECT_EQ(
    join_line(options, "train", {{"192.0.2.1", 7700}, {"10.0.0.1", 7700}}, {"0.0.0.0", 7700}),
    "waggle train --run-id demo --initial-peers 192.0.2.1:7700 --listen 0.0.0.0:0");
}

TEST(JoinLine, OnLoopbackTheJoinerAnnouncesLoopback) {
  EXPECT_THAT(join_line({}, "train", {{"127.0.0.1", 4000}}, {"127.0.0.1", 4000}),
              HasSubstr(" --announce 127.0.0.1:0"));
  EXPECT_THAT(join_line({}, "train", {}, {"127.0.0.1", 4000}),
              HasSubstr("--initial-peers 127.0.0.1:4000"));
}

TEST(JoinLine, RepeatsWhatAllMustSayAlikeAndNothingElse) {
  run_options options;
  options.given = {
    {"width", "128"}, {"codec", "float16"},       {"data", "/a b/c"},    {"elements", "9"},
    {"lr", "0.1"},    {"device", "cuda:1"},       {"threads", "8"},      {"data-dir", "/mine"},
    {"seed", "3"},    {"identity", "/mine/key"},  {"resume", "true"},    {"linger", "1h"},
    {"peers", "4"},   {"listen", "0.0.0.0:7700"}, {"join-timeout", "1s"}};
  auto line = join_line(options, "train", {}, {"10.0.0.1", 1});
  for (const char* shared :
       {" --width 128", " --codec float16", " --data '/a b/c'", " --elements 9", " --lr 0.1"})
    EXPECT_THAT(line, HasSubstr(shared));
  for (const char* own : {"--device", "--threads", "--data-dir", "--seed", "--identity", "--resume",
                          "--linger", "--peers", "7700", "--join-timeout"})
    EXPECT_THAT(line, Not(HasSubstr(own)));
}
