#include "runtime/cli/join_line.hpp"

#include <filesystem>
#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "runtime/config/agreed_options.hpp"
#include "runtime/config/options.hpp"

using namespace waggle;
using ::testing::HasSubstr;

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
  EXPECT_EQ(join_line("demo", nullptr, {{"192.0.2.1", 7700}, {"10.0.0.1", 7700}}, {"::", 7700}),
            "waggle train --run-id demo --initial-peers 192.0.2.1:7700 --listen '[::]:0'");
  EXPECT_THAT(join_line("demo", nullptr, {{"2001:db8::1", 7700}}, {"::", 7700}),
              HasSubstr("--initial-peers '[2001:db8::1]:7700' --listen '[::]:0'"));
}

TEST(JoinLine, OnLoopbackTheJoinerAnnouncesLoopback) {
  EXPECT_THAT(join_line("demo", nullptr, {{"127.0.0.1", 4000}}, {"127.0.0.1", 4000}),
              HasSubstr(" --announce 127.0.0.1:0"));
  EXPECT_THAT(join_line("demo", nullptr, {{"::1", 4000}}, {"::1", 4000}),
              HasSubstr(" --announce '[::1]:0'"));
}

TEST(JoinLine, HasTheAgreementsOptionsQuotedAndNothingElse) {
  run_options options;
  options.width = 128;
  options.averaging.codec = codec_id::float16;
  options.data = "/a b/c";
  options.lr = 0.1;
  options.device = "cuda:1";
  options.auxiliary = true;
  options.bandwidth = 5;
  options.micro_batch = 2;
  options.given = {{"width", "128"},   {"codec", "float16"}, {"data", "/a b/c"},
                   {"lr", "0.1"},      {"device", "cuda:1"}, {"auxiliary", "true"},
                   {"bandwidth", "5"}, {"micro-batch", "2"}, {"epochs", "0"},
                   {"seed", "3"},      {"data-dir", "/mine"}};
  auto agreement = training_agreement(options, 2);
  EXPECT_EQ(join_line("demo", &*agreement, {}, {"10.0.0.1", 1}),
            "waggle train --run-id demo --initial-peers 10.0.0.1:1 --listen '[::]:0' --width 128 "
            "--lr 0.1 --data '/a b/c' --codec float16");
}

TEST(JoinLine, NamesTheFileOfTheKey) {
  EXPECT_THAT(join_line("demo", nullptr, {{"192.0.2.1", 7700}}, {"::", 7700}, "/k/birds key"),
              HasSubstr("train --run-id demo --swarm-key '/k/birds key' --initial-peers"));
  EXPECT_THAT(join_line("demo", nullptr, {{"192.0.2.1", 7700}}, {"::", 7700}, {}, "1f"),
              HasSubstr("train --run-id demo --members 1f --initial-peers"));
}

TEST(Invitation, IsARunFileWithTheKeyAllAddressesAndTheAgreement) {
  run_options options;
  options.averaging.codec = codec_id::float16;
  options.data = R"(/a "b"\c)";
  options.given = {{"codec", "float16"}, {"data", options.data}, {"data-dir", "/mine"}};
  auto agreement = training_agreement(options, 2);
  auto key = make_swarm_key();
  auto authority = identity::from_seed(1);
  auto list = member_list::sign(*authority, 3, {{authority->id(), swarm_time::max()}});
  auto file = std::filesystem::temp_directory_path()
              / ("waggle-invitation-" + std::to_string(::getpid()) + ".toml");
  std::ofstream{file} << invitation("demo", &*agreement, {{"192.0.2.1", 7700}, {"::1", 7}}, {}, key,
                                    to_string(authority->key()), inline_text(*list));
  auto read = from_file(file);
  std::filesystem::remove(file);
  auto joins = resolve(*read, {}, {});
  ASSERT_TRUE(load_key(*joins));
  EXPECT_EQ(joins->run_id, "demo");
  EXPECT_EQ(joins->key, key);
  EXPECT_EQ(joins->run(), run_id_of(key));
  EXPECT_EQ((*membership_of(*joins))->rank(), list->rank());
  EXPECT_EQ(joins->initial_peers, (std::vector<endpoint>{{"192.0.2.1", 7700}, {"::1", 7}}));
  EXPECT_EQ(joins->averaging.codec, codec_id::float16);
  EXPECT_EQ(joins->data, options.data);
  EXPECT_FALSE(joins->given.contains("data-dir"));
}

TEST(JoinLine, LeadsToTheCommandOfTheRun) {
  run_options options;
  options.elements = 9;
  auto agreement = averaging_agreement(options, 2);
  EXPECT_EQ(join_line("demo", &*agreement, {}, {"10.0.0.1", 1}),
            "waggle average --run-id demo --initial-peers 10.0.0.1:1 --listen '[::]:0' "
            "--elements 9");
}
