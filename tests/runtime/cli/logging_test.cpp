#include "runtime/cli/logging.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <spdlog/details/log_msg.h>

#include "runtime/core/log_about.hpp"

using namespace waggle;
using ::testing::EndsWith, ::testing::HasSubstr;

namespace {

std::string written(const std::string& format, const std::string& message) {
  spdlog::details::log_msg record{"waggle", spdlog::level::warn, message};
  spdlog::memory_buf_t out;
  make_formatter(format, "01234567", "50 %v \"of\" a run")->format(record, out);
  return {out.data(), out.size()};
}

} // namespace

TEST(Logging, WritesALineForPeople) {
  EXPECT_THAT(written("text", "peer x left"), EndsWith(" warning peer x left\n"));
}

TEST(Logging, WritesAJsonObjectALine) {
  auto record = nlohmann::json::parse(written("json", "a \"b\"\n\x1b[0m"));
  EXPECT_EQ(record["level"], "warning");
  EXPECT_EQ(record["peer"], "01234567");
  EXPECT_EQ(record["run"], "50 %v \"of\" a run");
  EXPECT_EQ(record["message"], "a \"b\"\n\x1b[0m");
}

TEST(Logging, WritesWhatALineIsAboutAsFieldsOfJsonAlone) {
  auto keys = [](const nlohmann::json& record) {
    std::string all;
    for (const auto& [key, value] : record.items())
      all += key + " ";
    return all;
  };
  log_about epoch{{.epoch = epoch_id{7}}};
  {
    round_id round;
    round.bytes[0] = std::byte{0xab};
    peer_id remote;
    remote.bytes[0] = std::byte{0xcd};
    log_about more{{.round = round,
                    .remote = remote,
                    .reason = ec::peer_lost,
                    .loss = 2.5,
                    .samples_per_second = std::nan(""),
                    .seconds = 0.125}};
    auto record = nlohmann::json::parse(written("json", "x"));
    EXPECT_EQ(record["epoch"], 7);
    EXPECT_EQ(record["round"], to_string(round));
    EXPECT_EQ(record["reason"], "peer_lost");
    EXPECT_EQ(record["remote"], "cd000000");
    EXPECT_EQ(record["loss"], 2.5);
    EXPECT_EQ(record["seconds"], 0.125);
    EXPECT_FALSE(record.contains("samples_per_second")) << "not known";
    EXPECT_THAT(written("text", "x"), EndsWith(" warning x\n"));
  }
  EXPECT_EQ(keys(nlohmann::json::parse(written("json", "x"))),
            "epoch level message peer run time ");
}

TEST(Logging, WhatAPeerSaidIsOneLineAndCannotDriveTheTerminal) {
  EXPECT_THAT(written("text", "refused: x\n12:00:00 critical all is lost\x1b[2J"),
              EndsWith(" refused: x\\x0a12:00:00 critical all is lost\\x1b[2J\n"));
  auto json = written("json", "x\n\xc2\x9b\x1b\xff");
  EXPECT_EQ(std::count(json.begin(), json.end(), '\n'), 1);
  for (char c : json)
    EXPECT_TRUE(c == '\n' || (c >= ' ' && c <= '~')) << static_cast<int>(c);
}

TEST(Logging, WhatAPeerSaidIsBounded) {
  EXPECT_LT(written("text", std::string(1'000'000, 'x')).size(), 10'000U);
  EXPECT_LT(written("json", std::string(1'000'000, 'x')).size(), 10'000U);
}
