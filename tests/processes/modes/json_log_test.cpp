// What two trainers write to standard error with --log-format json.

#include <set>

#include <gmock/gmock.h>

#include "tests/processes/peer.hpp"

namespace waggle::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::IsSupersetOf;
using ::testing::StartsWith;

struct JsonLog : ::testing::Test {
  [[nodiscard]] peer start(const std::string& name, const std::string& join,
                           const std::vector<std::string>& more = {}) const {
    auto all = words(
      "train --run-id of-json --model mlp --width 16 --layers 1 --micro-batch 4 "
      "--target-batch-size 64 --step-interval 10ms --epochs 6 --min-peers 2 --log-format json "
      "--log-level debug",
      more);
    if (!join.empty())
      all.insert(all.end(), {"--initial-peers", join});
    return {folder, name, all};
  }
  /// All lines are objects, of this run, and say who wrote them.
  static std::vector<nlohmann::json> lines_of(const peer& who) {
    std::vector<nlohmann::json> found;
    std::istringstream lines{who.log()};
    for (std::string line; std::getline(lines, line);) {
      auto parsed = nlohmann::json::parse(line, nullptr, false);
      EXPECT_TRUE(parsed.is_object()) << line;
      if (!parsed.is_object())
        continue;
      EXPECT_EQ(parsed.value("run", ""), "of-json") << line;
      EXPECT_EQ(parsed.value("peer", "").size(), 8U) << line;
      found.push_back(parsed);
    }
    return found;
  }
  static std::string after(const std::vector<nlohmann::json>& lines, const std::string& begin) {
    for (const auto& line : lines)
      if (auto text = line.value("message", ""); text.starts_with(begin))
        return text.substr(begin.size());
    return {};
  }

  scratch_folder folder;
};

TEST_F(JsonLog, OfATrainerIsJsonFromTheStartToTheSummaryWithWhatEachLineIsAbout) {
  auto first = start("first", {});
  std::string address;
  ASSERT_TRUE(eventually([&] { // a line that is being written is not whole
    auto log = first.log();
    auto at = log.find("listening on ");
    if (at == std::string::npos || log.find('\n', at) == std::string::npos)
      return false;
    address = log.substr(at + 13, log.find('"', at) - at - 13);
    return true;
  }))
    << first.log();
  auto second = start("second", address);
  EXPECT_EQ(first.await_exit(60s), 0) << first.log();
  EXPECT_EQ(second.await_exit(60s), 0) << second.log();
  std::set<std::string> keys;
  bool rounds = false;
  for (const auto* who : {&first, &second}) {
    auto lines = lines_of(*who);
    EXPECT_THAT(after(lines, "join with:\n"), HasSubstr("waggle train"));
    EXPECT_THAT(after(lines, "peer "), HasSubstr(" of run of-json, data in "));
    EXPECT_THAT(lines.back()["message"].get<std::string>(), HasSubstr("epoch 6"));
    for (const auto& line : lines) {
      for (const auto& [key, value] : line.items())
        keys.insert(key);
      auto text = line["message"].get<std::string>();
      if (text.starts_with("round ")) {
        rounds = true;
        EXPECT_TRUE(line.contains("epoch")) << line;
        EXPECT_THAT(line.value("round", ""), StartsWith(text.substr(6, 8))) << line;
      }
      if (text.starts_with("connected to peer ") || text.starts_with("lost peer ")) {
        EXPECT_THAT(text, HasSubstr(line.value("remote", "nobody"))) << line;
      }
    }
  }
  EXPECT_TRUE(rounds) << first.log();
  EXPECT_THAT(keys, IsSupersetOf({"time", "level", "peer", "run", "message", "epoch", "round",
                                  "remote", "reason"}));
}

TEST_F(JsonLog, HasMistakesThatAreFoundAfterItsBegin) {
  auto misled = start("misled", {}, {"--listen", "192.0.2.1:7700"}); // no address of any machine
  EXPECT_EQ(misled.await_exit(60s), 2) << misled.log();
  auto lines = lines_of(misled);
  ASSERT_FALSE(lines.empty());
  EXPECT_EQ(lines.back()["level"], "error");
  EXPECT_THAT(lines.back()["message"].get<std::string>(), HasSubstr("192.0.2.1"));
}

} // namespace
} // namespace waggle::testing
