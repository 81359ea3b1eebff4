#include "runtime/cli/status_text.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "runtime/watch/json_fields.hpp"

using namespace waggle;
using ::testing::HasSubstr, ::testing::Not;
using json = nlohmann::ordered_json;

namespace {

const std::string id(64, 'a');

/// The text of this document, without peers.
std::string shown(const std::string& document) {
  return status_text(json::parse(document), json::array());
}
std::string shown_peers(const std::string& peers) {
  return status_text(json::object(), json::parse(peers));
}

/// The line of a field.
std::string line(const std::string& label, const std::string& value) {
  return label + std::string(22 - label.size(), ' ') + value + "\n";
}

} // namespace

TEST(StatusText, SaysWhatPeopleRead) {
  EXPECT_EQ(
    shown(R"({"peer":")" + id + R"(","run":"demo","version":"0.1.0","phase":"training","epoch":1200,
      "samples_toward_epoch":17,"loss":2.3414567890123,"samples":{"used":51200,"dropped":0},
      "rounds":{"complete":4,"shrunk":1,"failed":2},"samples_per_second":5119.7654321,
      "compute_samples_per_second":14.23456789,"learning_rate":0.003,"last_outcome":"",
      "parameters":")"
          + std::string(64, 'b') + R"(","bytes":{"in":812,"out":12300000,"shared":0},
      "bandwidth":3145728.123,"uptime_seconds":200.123456789})"),
    line("peer", "aaaaaaaa") + line("run", "demo") + line("version", "0.1.0")
      + line("phase", "training") + line("epoch", "1,200") + line("samples toward epoch", "17")
      + line("loss", "2.341") + line("samples", "used 51,200, dropped 0")
      + line("rounds", "complete 4, shrunk 1, failed 2") + line("speed", "5,120 samples/s")
      + line("compute speed", "14.23 samples/s") + line("learning rate", "0.003")
      + line("last outcome", "-") + line("parameters", "bbbbbbbb")
      + line("bytes", "in 812 B, out 12.3 MB, shared 0 B") + line("bandwidth", "3.1 MB/s")
      + line("uptime", "3 m 20 s")
      + "\npeer      epoch  toward epoch  samples/s  connected  address\n");
}

TEST(StatusText, WhatIsNotKnownIsADash) {
  EXPECT_THAT(shown(R"({"loss":null,"learning_rate":null})"),
              HasSubstr(line("loss", "-") + line("learning rate", "-")));
}

TEST(StatusText, ANoticeIsShownToItsEnd) {
  auto said = std::string(300, 'x') + ": raise --target-batch-size";
  EXPECT_THAT(shown(R"({"notice":")" + said + R"("})"), HasSubstr(line("notice", said)));
  EXPECT_THAT(shown(R"({"notice":")" + std::string(5000, 'x') + R"("})"), HasSubstr("xxx...\n"));
  EXPECT_THAT(shown(R"({"other":")" + said + R"("})"), Not(HasSubstr("raise")));
}

TEST(StatusText, UnknownFieldsOfAnyKindAreShownInWords) {
  EXPECT_THAT(shown(R"({"fork":{"parent_epoch":7,"seen":[1,2,{"by":"x"}]},"provisional":true,
                        "empty":{},"list":[]})"),
              HasSubstr(line("fork", "parent epoch 7, seen 1, 2, by x") + line("provisional", "yes")
                        + line("empty", "none") + line("list", "none")));
}

TEST(StatusText, NoJsonAndNoLongNumberIsShown) {
  auto text = shown(R"({"a":{"b":{"c":{"d":{"e":1}}}},"x":0.123456789012345,"y":-4,"z":1e300})");
  EXPECT_THAT(text, Not(HasSubstr("{")));
  EXPECT_THAT(text, Not(HasSubstr("\"")));
  EXPECT_THAT(text, HasSubstr(line("x", "0.1235") + line("y", "-4") + line("z", "1e+300")));
}

TEST(StatusText, WhatAForeignServerSaysCannotDriveTheTerminal) {
  auto text = shown(R"({"phase":"\u001b[2J\n","\u001b]0;":"x","run":["\r\u009b"]})");
  for (char c : text)
    EXPECT_TRUE(c == '\n' || (c >= ' ' && c <= '~')) << static_cast<int>(c);
  EXPECT_THAT(text, HasSubstr(line("phase", "\\x1b[2J\\x0a")));
}

TEST(StatusText, WhatAForeignServerSaysIsBounded) {
  json many = json::object();
  for (int i = 0; i < 5000; ++i)
    many["field" + std::to_string(i)] = std::string(5000, 'x');
  EXPECT_THAT(status_text(many, json::array()), HasSubstr("and 4,900 more; --json shows all\n"));
  EXPECT_LT(status_text(many, json::array()).size(), 20'000U);
  EXPECT_LT(status_text({{"one", many}}, json::array()).size(), 1000U);
  json peers = json::array();
  for (int i = 0; i < 1000; ++i)
    peers.push_back({{"id", std::string(100'000, 'x')}});
  EXPECT_LT(status_text(json::object(), peers).size(), 50'000U);
  EXPECT_THAT(status_text(json::object(), peers), HasSubstr("and 800 more; --json shows all\n"));
}

TEST(StatusText, ListsThePeers) {
  EXPECT_THAT(
    shown_peers(R"([{"id":")" + id + R"(","addresses":["127.0.0.1:7700","[::1]:7700"],"epoch":12,
                     "samples_toward_epoch":5120,"samples_per_second":1234.5678,"self":true,
                     "connected":false},
                    {"id":"b","addresses":[],"self":false,"connected":true}])"),
    ::testing::EndsWith("peer      epoch  toward epoch  samples/s  connected  address\n"
                        "aaaaaaaa     12         5,120      1,235  (itself)   127.0.0.1:7700\n"
                        "b             -             -          -  yes        -\n"));
}

TEST(StatusText, PeersOfAnyKindAreShown) {
  for (const char* peers : {"null", "3", "{}", "[]", "[null,3,\"x\",[],{}]",
                            R"([{"id":3,"addresses":"x","epoch":{},"self":"yes"}])",
                            R"([{"id":{"a":1},"addresses":[{"b":[]}],"connected":1}])"})
    EXPECT_THAT(shown_peers(peers), HasSubstr("connected  address\n")) << peers;
}

TEST(StatusText, DocumentsThatAreNoneAreRefused) {
  EXPECT_FALSE(parse_document(""));
  EXPECT_FALSE(parse_document("{"));
  EXPECT_FALSE(parse_document("<html>"));
  EXPECT_FALSE(parse_document("\"\xff\"")) << "invalid UTF-8";
  EXPECT_TRUE(parse_document("{\"a\":[[{}]]}"));
}

TEST(StatusText, DocumentsNestedWithoutEndAreRefused) {
  // Copying or writing a document takes a stack frame per level.
  EXPECT_FALSE(parse_document(std::string(1'000'000, '[')));
  EXPECT_FALSE(parse_document(std::string(1000, '[') + std::string(1000, ']')));
  EXPECT_TRUE(parse_document(std::string(30, '[') + std::string(30, ']')));
}
