#include "runtime/status/symptoms.hpp"

#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "runtime/training/run_health.hpp"
#include "runtime/watch/slow_peers.hpp"

namespace waggle {
namespace {

using json = nlohmann::ordered_json;
using testing::ElementsAre, testing::HasSubstr, testing::IsEmpty;

std::vector<std::string> said(const std::string& status) {
  std::vector<std::string> out;
  for (const auto& each : symptoms_in(json::parse(status)))
    out.push_back(each.says);
  return out;
}

TEST(Symptoms, HaveAMatterOfTheirOwn) {
  std::set<std::string_view> matters;
  for (const auto& each : symptoms())
    EXPECT_TRUE(matters.insert(each.matter).second) << each.matter;
  EXPECT_EQ(symptom_of("nobody knows it").matter, "settings");
}

TEST(Symptoms, EachRuleOfARunAndEachCauseHasARowWithACure) {
  for (auto rule : run_health::rules) {
    EXPECT_EQ(symptom_of(rule).matter, rule);
    EXPECT_NE(symptom_of(rule).says, "") << rule;
  }
  for (std::size_t i = 0; i < slow_causes; ++i) {
    auto cause = to_string(static_cast<slow_cause>(i));
    EXPECT_EQ(symptom_of(cause).matter, cause);
    EXPECT_NE(symptom_of(cause).cure, "") << cause;
  }
  for (std::string_view matter : {"history", "claims", "initial_peers", "reach", "path_mtu"})
    EXPECT_EQ(symptom_of(matter).matter, matter);
}

TEST(Symptoms, AreFoundInAStatusTheWorstFirst) {
  EXPECT_THAT(said("{}"), IsEmpty());
  EXPECT_THAT(said(R"({"provisional":false,"histories":1,"differing_peers":0,"slow":null})"),
              IsEmpty());
  EXPECT_THAT(
    said(R"({"slow":[{"peer":"1a2b3c4d","cause":"far","text":"the round trip takes 80 ms"},
                     {"peer":"5e6f7a8b","cause":"adds_little","text":"1.5 %"}],
             "provisional":true,"histories":2,"differing_peers":3,
             "notices":[{"matter":"short_epochs","seen":"in 9 of 32 epochs","cure":"raise X"}]})"),
    ElementsAre("this peer is cut off from most of its group and goes on without it",
                "the run is split into 2 histories",
                "this peer holds other parameters than 3 of the peers at its epoch",
                "peer 1a2b3c4d is slow", "peer 5e6f7a8b adds little to the run",
                "rounds and downloads cost more than passes"));
}

TEST(Symptoms, ALoopThatGivesNoLossIsOneWhereTheStrategyNeedsIt) {
  EXPECT_THAT(said(R"({"strategy":{"phase":"warm-up"},"steps":2,"loss":null})"),
              ElementsAre("this loop gives no loss, which its strategy needs"));
  for (const char* other : {R"({"strategy":{"phase":"warm-up"},"steps":1,"loss":null})",
                            R"({"strategy":{"phase":"warm-up"},"steps":2,"loss":0.5})",
                            R"({"strategy":{"phase":null},"steps":2,"loss":null})"})
    EXPECT_THAT(said(other), IsEmpty()) << other;
}

TEST(Symptoms, ARankThatTheOthersWaitForIsOne) {
  std::string each =
    R"("each":[{"rank":0,"seconds":0.1},{"rank":1,"seconds":0.3,"pass_seconds":0.5}])";
  EXPECT_THAT(said(R"({"ranks":{"slowest":null,)" + each + "}}"), IsEmpty());
  EXPECT_THAT(said(R"({"ranks":{"slowest":1,)" + each + "}}"),
              ElementsAre("rank 1 of this peer is slow"));
  for (const char* bad : {R"({"ranks":7})", R"({"ranks":{"slowest":2,"each":[1,2]}})",
                          R"({"ranks":{"slowest":-1e9,"each":[]}})", R"({"ranks":{"slowest":0}})"})
    EXPECT_THAT(said(bad), IsEmpty()) << bad;
  EXPECT_THAT(said(R"({"ranks":{"slowest":0,"each":["x"]}})"), ElementsAre(HasSubstr("rank 0")));
}

TEST(Symptoms, LinksThatOthersCanReadAreOne) {
  EXPECT_THAT(said(R"({"plain_links":0})"), IsEmpty());
  EXPECT_THAT(said(R"({"plain_links":1})"),
              ElementsAre("a link with another machine is not encrypted: whoever reads the network "
                          "has the model"));
  EXPECT_THAT(
    said(R"({"plain_links":3})"),
    ElementsAre("3 links with other machines are not encrypted: whoever reads the network "
                "has the model"));
}

TEST(Symptoms, AMachineThatIsNearlyFullIsOne) {
  EXPECT_THAT(said(R"({"machine":{"disk":0.5,"memory":0.949,"load":9}})"), IsEmpty());
  EXPECT_THAT(said(R"({"machine":{"disk":0.97,"memory":0.95}})"),
              ElementsAre("the disk of --data-dir is nearly full",
                          "the memory of its machine is nearly full"));
  EXPECT_THAT(said(R"({"machine":{"disk":7,"memory":"1"}})"), IsEmpty());
}

TEST(Symptoms, AClockThatIsOffIsOne) {
  auto seen = [](const std::string& skew) {
    auto all = symptoms_in(json::parse("{\"clock_skew_seconds\":" + skew + "}"));
    return all.empty() ? std::string{} : all.front().what.seen;
  };
  EXPECT_EQ(seen("2.04"), "its clock is 2.0 s behind those of the others");
  EXPECT_EQ(seen("-60"), "its clock is 60.0 s ahead of those of the others");
  for (const auto* none : {"0.5", "-0.4", "1e300", "null", "\"2\""})
    EXPECT_EQ(seen(none), "") << none;
}

TEST(Symptoms, ANoticeKeepsItsNumbersAndItsCure) {
  auto found = symptoms_in(json::parse(
    R"({"notices":[{"matter":"short_epochs","seen":"in 9 of 32 epochs","cure":"raise X"},
                   {"matter":"zero_updates","seen":"in 8 of 32 epochs","cure":""},
                   {"matter":"new","seen":"something"}]})"));
  ASSERT_EQ(found.size(), 3U);
  EXPECT_EQ(found[0].what.text(), "in 9 of 32 epochs: raise X");
  EXPECT_EQ(found[1].what.cure, symptom_of("zero_updates").cure);
  EXPECT_EQ(found[2].says, "something");
}

TEST(Symptoms, WhatIsMalformedIsLeftOut) {
  for (
    const auto* status :
    {"null", "[]", "3", R"({"slow":{},"notices":"x"})",
     R"({"slow":[3,null,[],{"peer":7}],"notices":[3,null,{"seen":""},{"matter":"split","seen":"x"}]})",
     R"({"provisional":"yes","histories":"2","differing_peers":-1})"})
    EXPECT_THAT(said(status), IsEmpty()) << status;
  EXPECT_THAT(said(R"({"histories":1e300})"), ElementsAre(HasSubstr("histories")));
}

TEST(Symptoms, AStatusSaysSinceWhen) {
  symptom_times since;
  auto show = [&](bool provisional, std::int64_t now) {
    json status{{"provisional", provisional}, {"histories", 2}};
    show_symptoms(status, &since, now);
    return status;
  };
  show(false, 1000);
  auto second = show(true, 2000);
  EXPECT_EQ(second["notices"][0]["since"], 2000);
  EXPECT_EQ(second["notices"][1]["since"], 1000);
  EXPECT_EQ(second["notices"][0]["level"], "bad");
  EXPECT_THAT(second["notice"].get<std::string>(), HasSubstr("it: look at the links between"));
  show(false, 3000);
  EXPECT_EQ(show(true, 4000)["notices"][0]["since"], 4000);
  json healthy{{"histories", 1}};
  show_symptoms(healthy);
  EXPECT_TRUE(healthy["notice"].is_null());
  EXPECT_TRUE(healthy["notices"].empty());
}

} // namespace
} // namespace waggle
