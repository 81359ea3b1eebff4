#include "runtime/training/schedule.hpp"

#include <cmath>
#include <fstream>
#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "runtime/core/named.hpp"
#include "runtime/training/schedule_text.hpp"

namespace waggle {
namespace {

using ::testing::AllOf, ::testing::HasSubstr;

lr_schedule made(const std::string& text, double peak = 1, std::uint64_t warmup = 0,
                 std::uint64_t total = 0) {
  auto parts = parse_schedule(text);
  EXPECT_TRUE(parts) << text << " " << parts.error().detail;
  auto schedule = make_schedule(parts ? *parts : std::vector<schedule_part>{}, peak, warmup, total);
  EXPECT_TRUE(schedule) << schedule.error().detail;
  return schedule ? *schedule : lr_schedule{};
}

/// Why a text, or the schedule that it describes, is refused.
std::string refusal(const std::string& text, std::uint64_t warmup = 0, std::uint64_t total = 0) {
  auto parts = parse_schedule(text);
  if (!parts) {
    EXPECT_EQ(parts.error().code, ec::bad_config);
    return parts.error().detail;
  }
  auto schedule = make_schedule(*parts, 1, warmup, total);
  return schedule ? "" : schedule.error().detail;
}

/// A text with every number of the row, and a length if it has one.
std::string example_of(const schedule_row& row) {
  std::vector<std::string> numbers;
  for (const auto& number : row.numbers)
    numbers.push_back(std::string{number.name}
                      + (number.what == named_number::form::list ? "=3+7"
                         : number.what == named_number::form::whole
                           ? (number.high < 5 ? "=1" : "=5")
                           : "=" + std::to_string(number.initial.value_or(0.5))));
  if (row.ends)
    numbers.emplace_back("epochs=20");
  return std::string{row.name} + (numbers.empty() ? "" : ":") + joined(numbers, ",");
}

// -- as PyTorch and Hugging Face ------------------------------------------------------------------

TEST(Schedule, EveryScheduleHasTheRatesOfItsReference) {
  std::ifstream file{WAGGLE_SOURCE_DIR "/tests/runtime/training/schedule_vectors.json"};
  auto runs = nlohmann::json::parse(file);
  std::set<std::string> compared;
  for (const auto& run : runs) {
    auto text = run["schedule"].get<std::string>();
    auto schedule = made(text, 0.1, run["warmup_epochs"], run["epochs"]);
    for (const auto& part : schedule.parts)
      compared.emplace(part.row->name);
    std::uint64_t e = 0;
    for (double expected : run["rates"]) {
      EXPECT_NEAR(schedule.at(epoch_id{e}), expected, 1e-12) << text << ", epoch " << e;
      ++e;
    }
  }
  compared.emplace(plateau_name); // in plateau_test.cpp
  for (const auto& row : schedule_table())
    EXPECT_TRUE(compared.contains(std::string{row.name})) << row.name;
}

// -- properties -----------------------------------------------------------------------------------

TEST(Schedule, ConstantIsThePeakAtEveryEpoch) {
  EXPECT_EQ(made("constant", 0.25).at(epoch_id{0}), 0.25);
  EXPECT_EQ(made("constant", 0.25).at(epoch_id{1'000'000}), 0.25);
  EXPECT_EQ((lr_schedule{{}, 0.25}.at(epoch_id{7})), 0.25) << "without parts";
}

TEST(Schedule, WarmupRisesLinearlyAndReachesThePeakInItsLastEpoch) {
  for (const auto* text : {"warmup-cosine", "cosine", "constant", "linear:from=1"}) {
    auto s = made(text, 1.0, 4, 100);
    EXPECT_DOUBLE_EQ(s.at(epoch_id{0}), 0.25);
    EXPECT_DOUBLE_EQ(s.at(epoch_id{1}), 0.5);
    EXPECT_DOUBLE_EQ(s.at(epoch_id{3}), 1.0);
    EXPECT_DOUBLE_EQ(s.at(epoch_id{4}), 1.0);
  }
}

TEST(Schedule, CosineIsHalfWayInTheMiddleAndStaysAtTheFloor) {
  auto s = made("cosine:floor=0.2", 1, 10, 110);
  EXPECT_NEAR(s.at(epoch_id{60}), 0.6, 1e-12);
  EXPECT_NEAR(s.at(epoch_id{110}), 0.2, 1e-12);
  EXPECT_NEAR(s.at(epoch_id{5'000}), 0.2, 1e-12);
}

TEST(Schedule, ThoseThatOnlyFallNeverRise) {
  for (const auto* text :
       {"warmup-cosine", "cosine:floor=0.001", "step:every=7", "multi-step:at=3+30",
        "exponential:factor=0.97", "linear:from=1,to=0.1", "polynomial:power=0.5",
        "polynomial:power=3,floor=0.01", "inverse-sqrt:warmup=1", "wsd:warmup=0,decay=9"}) {
    auto s = made(text, 0.3, 0, 50);
    for (std::uint64_t k = 1; k < 70; ++k) // inverse-sqrt begins at 0
      EXPECT_LE(s.at(epoch_id{k + 1}), s.at(epoch_id{k}) * (1 + 1e-15)) << text << " epoch " << k;
  }
}

TEST(Schedule, ThoseWithAWarmupRiseDuringItAndReachThePeak) {
  for (const auto* text : {"warmup-linear:warmup=10", "warmup-constant:warmup=10",
                           "inverse-sqrt:warmup=10", "wsd:warmup=10,decay=10"}) {
    auto s = made(text, 0.3, 0, 50);
    EXPECT_EQ(s.at(epoch_id{0}), 0.0) << text;
    for (std::uint64_t k = 0; k < 10; ++k)
      EXPECT_GT(s.at(epoch_id{k + 1}), s.at(epoch_id{k})) << text << " epoch " << k;
    EXPECT_DOUBLE_EQ(s.at(epoch_id{10}), 0.3) << text;
  }
}

TEST(Schedule, OneCycleRisesOnceAndFallsOnce) {
  auto s = made("one-cycle", 0.1, 0, 100);
  for (std::uint64_t k = 0; k < 99; ++k)
    EXPECT_EQ(s.at(epoch_id{k + 1}) > s.at(epoch_id{k}), k < 29) << "epoch " << k;
}

TEST(Schedule, RatesAreFiniteAndNotNegativeAtEveryEpoch) {
  std::vector<std::string> texts{"cosine:epochs=1",
                                 "one-cycle:epochs=1",
                                 "one-cycle:rise=0,epochs=9",
                                 "one-cycle:rise=1,epochs=9",
                                 "polynomial:power=0,epochs=3",
                                 "cosine-restarts:first=1,growth=1000000",
                                 "exponential:factor=0",
                                 "step:every=1,factor=0",
                                 "warmup-linear:warmup=9,epochs=9",
                                 "wsd:warmup=4,decay=5,epochs=9",
                                 "linear:epochs=5/constant:epochs=3/cosine:epochs=4"};
  for (const auto& row : schedule_table())
    texts.push_back(example_of(row));
  for (const auto& text : texts)
    for (double peak : {0.0, 0.1, 1e6}) {
      // One of the examples has a floor above a peak of 0.
      auto parts = parse_schedule(text);
      ASSERT_TRUE(parts) << text << " " << parts.error().detail;
      auto s = make_schedule(*parts, peak, 0, 30);
      if (!s)
        continue;
      std::vector<std::uint64_t> epochs{~std::uint64_t{0}, ~std::uint64_t{0} - 1, 1ULL << 63U,
                                        1ULL << 53U, 1ULL << 40U};
      for (std::uint64_t k = 0; k < 100; ++k)
        epochs.push_back(k);
      for (auto k : epochs) {
        auto rate = s->at(epoch_id{k});
        EXPECT_TRUE(std::isfinite(rate) && rate >= 0 && rate <= peak * (1 + 1e-12))
          << text << " is " << rate << " at epoch " << k;
      }
    }
}

TEST(Schedule, AWarmupLongerThanTheRunDoesNotDivideByZero) {
  for (const auto& row : schedule_table())
    if (row.ends && row.numbers.empty()) {
      auto s = made(std::string{row.name}, 1, 8, 8);
      EXPECT_DOUBLE_EQ(s.at(epoch_id{7}), 1.0);
      EXPECT_DOUBLE_EQ(s.at(epoch_id{8}), 1.0);
    }
}

TEST(Schedule, APartOfASequenceBeginsWhereTheOneBeforeItEnds) {
  auto s = made("linear:from=0,to=1,epochs=4/constant:epochs=3/cosine", 1, 0, 17);
  auto cosine = made("cosine:epochs=10");
  EXPECT_EQ(s.at(epoch_id{2}), 0.5);
  EXPECT_EQ(s.at(epoch_id{4}), 1.0);
  EXPECT_EQ(s.at(epoch_id{6}), 1.0);
  for (std::uint64_t k = 0; k < 12; ++k)
    EXPECT_EQ(s.at(epoch_id{k + 7}), cosine.at(epoch_id{k}));
}

TEST(Schedule, APlateauBeginsAfterTheWarmupAndTheParts) {
  auto s =
    made("linear:epochs=7/plateau:patience=3,floor=0.01,eps=0,cooldown=2,threshold=0.5", 0.5, 4);
  auto rule = s.plateau();
  ASSERT_TRUE(rule);
  plateau_rule expected{.peak = 0.5,
                        .patience = 3,
                        .threshold = 0.5,
                        .cooldown = 2,
                        .floor = 0.01,
                        .least_change = 0,
                        .begins = epoch_id{11}};
  EXPECT_EQ(*rule, expected);
  EXPECT_EQ(s.at(epoch_id{11}), 0.5);
  EXPECT_LT(s.at(epoch_id{9}), 0.5);
  EXPECT_EQ(made("constant").plateau(), std::nullopt);
  EXPECT_EQ(made("plateau").plateau()->begins, epoch_id{0});
  EXPECT_TRUE(made("plateau:absolute=1").plateau()->absolute);
}

TEST(Schedule, IsThePureFunctionThatMakesJoinersEqual) { // INV-3: same epoch, same bits
  for (const auto& row : schedule_table()) {
    auto a = made(example_of(row), 1);
    auto b = a;
    for (std::uint64_t k = 0; k < 50; ++k)
      EXPECT_GE(b.at(epoch_id{k}), 0.0); // a peer that was there from the start
    EXPECT_EQ(a.at(epoch_id{33}), b.at(epoch_id{33}));
  }
}

// -- texts ----------------------------------------------------------------------------------------

TEST(ScheduleText, OneSpellingIsWrittenAndReadBack) {
  for (const auto& row : schedule_table()) {
    auto parts = parse_schedule(example_of(row));
    ASSERT_TRUE(parts) << example_of(row) << " " << parts.error().detail;
    auto again = parse_schedule(text_of(*parts));
    ASSERT_TRUE(again) << text_of(*parts);
    EXPECT_EQ(*again, *parts) << text_of(*parts);
  }
  auto spelled = [](const char* text) { return text_of(*parse_schedule(text)); };
  EXPECT_EQ(spelled("constant"), "constant");
  EXPECT_EQ(spelled("warmup-cosine"), "warmup-cosine");
  EXPECT_EQ(spelled("step:every=30"), "step:every=30,factor=0.1");
  EXPECT_EQ(spelled("step:factor=1e-1,every=30.0"), "step:every=30,factor=0.1");
  EXPECT_EQ(spelled("multi-step:at=8+3"), "multi-step:factor=0.1,at=3+8");
  EXPECT_EQ(spelled("linear:to=0,epochs=5/cosine"),
            "linear:from=0.3333333333333333,to=0,epochs=5/cosine:floor=0");
}

TEST(ScheduleText, ALengthThatTheRunGivesAnywayIsNotCompared) {
  auto agreed = [](const char* text, std::uint64_t warmup, std::uint64_t total) {
    return agreed_text(*parse_schedule(text), warmup, total);
  };
  EXPECT_EQ(agreed("cosine:epochs=90", 10, 100), agreed("cosine", 10, 100));
  EXPECT_NE(agreed("cosine:epochs=91", 10, 100), agreed("cosine", 10, 100));
  EXPECT_EQ(agreed("linear:epochs=5/cosine:epochs=95", 0, 100),
            agreed("linear:epochs=5/cosine", 0, 100));
  EXPECT_EQ(agreed("warmup-cosine", 3, 9), "warmup-cosine");
}

TEST(ScheduleText, ErrorsSayWhatToWriteInstead) {
  EXPECT_THAT(refusal("cosin"), HasSubstr("the nearest is cosine"));
  EXPECT_THAT(refusal(""), HasSubstr("unknown schedule ''"));
  EXPECT_THAT(refusal("linear:epochs=5/"), HasSubstr("unknown schedule ''"));
  EXPECT_THAT(refusal("step:evry=3"),
              AllOf(HasSubstr("unknown number 'evry'"), HasSubstr("every, factor and epochs"),
                    HasSubstr("the nearest is every")));
  EXPECT_THAT(refusal("step"), HasSubstr("leaves out every of step: write step:every=N"));
  EXPECT_THAT(refusal("multi-step"), HasSubstr("write multi-step:at=30+60"));
  EXPECT_THAT(refusal("step:every"), HasSubstr("write every=N"));
  EXPECT_THAT(refusal("step:every=3,every=4"), HasSubstr("every of step twice"));
  EXPECT_THAT(refusal("step:every=x"), HasSubstr("'x', which is no finite number"));
  EXPECT_THAT(refusal("step:every=nan"), HasSubstr("no finite number"));
  EXPECT_THAT(refusal("step:every=2.5"), HasSubstr("a whole number"));
  EXPECT_THAT(refusal("step:every=0"), HasSubstr("between 1 and"));
  EXPECT_THAT(refusal("exponential:factor=1.5"), HasSubstr("between 0 and 1"));
  EXPECT_THAT(refusal("multi-step:at=3+"), HasSubstr("'', which is no finite number"));
  EXPECT_THAT(refusal("cosine"), HasSubstr("write cosine:epochs=N, or set --epochs"));
  EXPECT_THAT(refusal("linear/cosine", 0, 50),
              AllOf(HasSubstr("because cosine follows it"), HasSubstr("linear:epochs=N")));
  EXPECT_THAT(refusal("step:every=3,epochs=9"), HasSubstr("leave out its epochs"));
  EXPECT_THAT(refusal("linear:epochs=50/cosine", 0, 40), HasSubstr("--epochs is only 40"));
  EXPECT_THAT(refusal("cosine:floor=2", 0, 40), HasSubstr("above --lr 1"));
  EXPECT_THAT(refusal("wsd:warmup=30,decay=20", 0, 40),
              AllOf(HasSubstr("take 50"), HasSubstr("only 40")));
  EXPECT_THAT(refusal("plateau/step:every=3"), HasSubstr("put it last"));
  EXPECT_THAT(refusal("plateau:epochs=5/step:every=3"), HasSubstr("put it last"));
  EXPECT_THAT(refusal("plateau:epochs=5"), HasSubstr("leave out its epochs"));
  EXPECT_THAT(refusal("plateau:factor=1"), HasSubstr("never fall"));
  EXPECT_THAT(refusal("plateau:threshold=1"), HasSubstr("absolute=1"));
  EXPECT_EQ(refusal("plateau:threshold=1,absolute=1"), "");
  EXPECT_THAT(refusal("plateau:floor=2"), HasSubstr("above --lr 1"));
  EXPECT_THAT(refusal("plateau:patience=2000000"), HasSubstr("between 0 and"));
  EXPECT_THAT(refusal("warmup-linear:warmup=5", 5, 40), HasSubstr("set its number warmup"));
}

TEST(ScheduleText, TheHelpNamesEveryScheduleAndNumber) {
  auto help = schedule_help();
  for (const auto& row : schedule_table()) {
    EXPECT_THAT(help, HasSubstr(std::string{row.name}));
    EXPECT_FALSE(row.help.empty()) << row.name;
    for (const auto& number : row.numbers)
      EXPECT_THAT(help, HasSubstr(std::string{number.name} + "="));
  }
}

} // namespace
} // namespace waggle
