#include "runtime/cli/curve_text.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace waggle {
namespace {

using json = nlohmann::ordered_json;
using testing::HasSubstr;

TEST(CurveText, IsAPlotWithTheFirstTheBestAndTheLastValue) {
  json document{{"epoch", json::array()}, {"loss", json::array()}};
  for (int e = 0; e <= 1000; ++e) {
    document["epoch"].push_back(e * 16);
    document["loss"].push_back(4.0 - 0.003 * e);
  }
  document["best"] = {{"loss", {{"epoch", 16'000}, {"value", 1.0}}}};
  auto text = curve_text(document, "loss");
  EXPECT_THAT(text, HasSubstr("         4 |***"));
  EXPECT_THAT(text, HasSubstr("         1 |  "));
  EXPECT_THAT(text, HasSubstr("16,000\nloss: first 4 at epoch 0, best 1 at epoch 16,000, last 1 at "
                              "epoch 16,000\n"));
  EXPECT_EQ(std::ranges::count(text, '\n'), 15);
  for (std::size_t at = 0; at < text.size();) {
    auto end = text.find('\n', at);
    EXPECT_LE(end - at, 80U);
    at = end + 1;
  }
}

TEST(CurveText, NothingIsKnownOfACurveOfNulls) {
  EXPECT_EQ(curve_text({{"epoch", {1, 2}}, {"loss", {nullptr, nullptr}}}, "loss"), "");
  EXPECT_EQ(curve_text({{"epoch", json::array()}, {"loss", json::array()}}, "loss"), "");
}

TEST(CurveText, OnePointIsAPlot) {
  EXPECT_THAT(curve_text({{"epoch", {5}}, {"loss", {2.5}}}, "loss"),
              HasSubstr("loss: first 2.5 at epoch 5, last 2.5 at epoch 5"));
}

TEST(CurveText, WhateverAnotherProgramAnswersIsNoPlotOrAPlot) {
  for (const auto* body :
       {"null", "[]", "{}", R"({"epoch":1,"loss":2})", R"({"epoch":["a"],"loss":[1]})",
        R"({"epoch":[-5],"loss":[1]})", R"({"epoch":[1e300],"loss":[1]})",
        R"({"epoch":[1,2],"loss":["\u001b[2J",{}]})"})
    EXPECT_EQ(curve_text(json::parse(body), "loss"), "") << body;
  for (const auto* body :
       {R"({"epoch":[1,1,0,2],"loss":[1,2,3,4]})", R"({"epoch":[1,2,3],"loss":[1,2]})",
        R"({"epoch":[1,2],"loss":[1e300,-1e300]})",
        R"({"epoch":[1,2],"loss":[1,1],"best":{"loss":{"epoch":-1,"value":"x"}}})",
        R"({"epoch":[0,9007199254740992],"loss":[1,2]})"}) {
    auto text = curve_text(json::parse(body), "loss");
    EXPECT_THAT(text, HasSubstr("loss: first ")) << body;
    EXPECT_EQ(text.find_first_of('\x1b'), std::string::npos);
  }
}

} // namespace
} // namespace waggle
