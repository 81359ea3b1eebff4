#include "runtime/training/run_health.hpp"

#include <functional>
#include <map>
#include <utility>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/ids.hpp"

namespace waggle {

namespace {

using ::testing::AllOf, ::testing::HasSubstr, ::testing::Not, ::testing::StartsWith;

run_health::options four_peers() {
  return run_health::options{.averaging_timeout = 60, .target_batch = 256, .group_size_max = 64};
}

/// 256 samples in two seconds, a round of 0.1 s.
epoch_facts healthy() {
  return {.peers = 4,
          .contributors = 4,
          .round_seconds = 0.1,
          .download_seconds = 1,
          .samples_per_second = 128,
          .pass_samples = 32, // two passes of each are just the target batch
          .gradient_norm = 0.5};
}

/// A peer, and the time that has passed.
struct watched {
  run_health health{four_peers()};
  steady_time now{};
  std::vector<std::string> logged{};

  watched& after(std::size_t epochs, const epoch_facts& e) {
    for (std::size_t i = 0; i < epochs; ++i) {
      now += std::chrono::seconds{2};
      for (auto& line : health.end_epoch(e, now))
        logged.push_back(std::move(line));
    }
    return *this;
  }
};

struct symptom {
  std::string rule;
  std::function<void(epoch_facts&)> show;
};

const std::vector<symptom> symptoms{
  {"small_rounds", [](epoch_facts& e) { e.contributors = 3; }},
  {"own_gradients",
   [](epoch_facts& e) {
     e.own_gradient = true;
     e.contributors = 1;
     e.round_seconds = 0;
   }},
  {"short_epochs", [](epoch_facts& e) { e.samples_per_second = 256 / 1.05; }},
  {"small_batches", [](epoch_facts& e) { e.pass_samples = 33; }},
  {"zero_updates", [](epoch_facts& e) { e.gradient_norm = 0; }},
};

epoch_facts with(const symptom& s) {
  auto e = healthy();
  s.show(e);
  return e;
}

TEST(RunHealth, AHealthyRunHasNoNotice) {
  watched run;
  run.after(100, healthy());
  EXPECT_EQ(text_of(run.health.notices()), "");
  EXPECT_TRUE(run.logged.empty());
  for (auto rule : run_health::rules)
    EXPECT_FALSE(run.health.holds(rule)) << rule;
}

TEST(RunHealth, EachSymptomMakesItsRuleHoldAndNoOther) {
  for (const auto& s : symptoms) {
    watched run;
    run.after(run_health::window, with(s));
    for (auto rule : run_health::rules)
      EXPECT_EQ(run.health.holds(rule), rule == s.rule) << s.rule << " and " << rule;
    EXPECT_THAT(text_of(run.health.notices()), HasSubstr("in 32 of the last 32 epochs")) << s.rule;
  }
}

TEST(RunHealth, ARuleBeginsAtItsShareAndEndsBelowASmallerOne) {
  for (const auto& s : symptoms) {
    bool quarter = s.rule != "short_epochs" && s.rule != "small_batches";
    auto begins = quarter ? 8U : 16U; // of 32
    auto ends = quarter ? 3U : 7U;    // below 10 % and 25 %
    watched run;
    run.after(run_health::window, healthy()).after(begins - 1, with(s));
    EXPECT_FALSE(run.health.holds(s.rule)) << s.rule;
    run.after(1, with(s));
    EXPECT_TRUE(run.health.holds(s.rule)) << s.rule;
    // The epochs that show it leave the window last.
    run.after(run_health::window - ends - 1, healthy());
    EXPECT_TRUE(run.health.holds(s.rule)) << s.rule;
    run.after(1, healthy());
    EXPECT_FALSE(run.health.holds(s.rule)) << s.rule;
    EXPECT_EQ(text_of(run.health.notices()), "") << s.rule;
  }
}

TEST(RunHealth, NothingIsJudgedFromAFewEpochs) {
  watched run;
  run.after(run_health::judged_from - 1, with(symptoms[0]));
  EXPECT_FALSE(run.health.holds("small_rounds"));
  run.after(1, with(symptoms[0]));
  EXPECT_TRUE(run.health.holds("small_rounds"));
}

TEST(RunHealth, ARuleIsLoggedWhenItBeginsAndThenEveryTenMinutes) {
  watched run;
  auto bad = with(symptoms[0]);
  run.after(run_health::window, bad);
  EXPECT_EQ(run.logged.size(), 1U);
  // It ends and begins again: no new line before ten minutes have passed.
  run.after(run_health::window, healthy()).after(run_health::window, bad);
  EXPECT_TRUE(run.health.holds("small_rounds"));
  EXPECT_EQ(run.logged.size(), 1U);
  run.after(300, bad); // two seconds each
  EXPECT_EQ(run.logged.size(), 2U);
}

TEST(RunHealth, SentencesHaveTheNumbersAndNameTheOption) {
  watched few;
  few.after(8, with(symptoms[0]));
  EXPECT_EQ(text_of(few.health.notices()),
            "in 8 of the last 8 epochs only 3.0 of 4.0 peers took part in the round: members that "
            "stall are left out, so raise --stall-timeout or --target-batch-size if their links "
            "or machines are slow");
  watched early;
  early.after(8, with(symptoms[2]));
  EXPECT_EQ(text_of(early.health.notices()),
            "in 8 of the last 8 epochs the peers compute 256 samples in 1.05 s, less than the 0.1 "
            "s of a round and the 1 s in which a peer that joins downloads the state: raise "
            "--target-batch-size to 269 or more");
  watched small;
  small.after(8, with(symptoms[3]));
  EXPECT_EQ(text_of(small.health.notices()),
            "in 8 of the last 8 epochs the target batch of 256 samples was less than two passes of "
            "33 samples of each of the 4 peers, so some contribute little or nothing: raise "
            "--target-batch-size to 264, or lower --micro-batch");
}

TEST(RunHealth, WhereGroupsAreSearchedForEachRoundMoreTimeForTheSearchHelps) {
  auto how = four_peers();
  how.searches_groups = true;
  watched run{run_health{how}};
  run.after(8, with(symptoms[0]));
  EXPECT_THAT(text_of(run.health.notices()), HasSubstr("raise --matchmaking-time"));
}

TEST(RunHealth, TheTimeoutIsComparedWithTwiceTheLongestRoundThatSucceeded) {
  auto slow = healthy();
  slow.samples_per_second = 1; // epochs are long compared with these rounds
  slow.round_seconds = 50;
  watched tight;
  auto shorter = slow;
  shorter.round_seconds = 20;
  tight.after(3, slow).after(3, shorter).after(2, with(symptoms[1]));
  EXPECT_THAT(text_of(tight.health.notices()),
              HasSubstr("took 50 s, so raise --averaging-timeout, which is 60 s, to 100 s"));
  watched wide;
  wide.after(6, healthy()).after(2, with(symptoms[1]));
  EXPECT_THAT(text_of(wide.health.notices()), HasSubstr("is long enough"));
  watched never;
  never.after(8, with(symptoms[1]));
  EXPECT_THAT(text_of(never.health.notices()), HasSubstr("no round succeeded"));
}

TEST(RunHealth, AGroupIsNotExpectedToBeLargerThanItsLimit) {
  auto how = four_peers();
  how.group_size_max = 8;
  how.target_batch = 0;
  watched run{run_health{how}};
  auto e = healthy();
  e.peers = 64;
  e.contributors = 8;
  run.after(32, e);
  EXPECT_EQ(text_of(run.health.notices()), "");
  e.contributors = 7;
  run.after(32, e);
  EXPECT_TRUE(run.health.holds("small_rounds"));
}

TEST(RunHealth, WhatIsNotKnownIsNoSymptom) {
  auto how = four_peers();
  how.target_batch = 0; // epochs are counted in steps
  watched by_steps{run_health{how}};
  auto e = healthy();
  e.pass_samples = 1000;
  e.samples_per_second = 1e6;
  e.gradient_norm.reset();
  by_steps.after(32, e);
  EXPECT_EQ(text_of(by_steps.health.notices()), "");
  watched unknown;
  auto new_run = healthy();
  new_run.samples_per_second = 0;
  new_run.pass_samples = 0;
  unknown.after(32, new_run);
  EXPECT_EQ(text_of(unknown.health.notices()), "");
}

// --target-batch-size is a quarter of what a round has then.
TEST(RunHealth, TheTargetBatchIsThatOfOneEpochOfTheScheduleIfARoundHasSeveral) {
  auto four_to_a_round = four_peers();
  four_to_a_round.epochs_per_round = 4;
  for (const auto& [rule, required] :
       {std::pair{"short_epochs", "68"}, std::pair{"small_batches", "66"}}) {
    watched run{run_health{four_to_a_round}};
    for (const auto& s : symptoms)
      if (s.rule == rule)
        run.after(run_health::judged_from, with(s));
    EXPECT_THAT(text_of(run.health.notices()),
                HasSubstr(std::string{"raise --target-batch-size to "} + required));
  }
}

TEST(RunHealth, TheNumbersAreThoseOfTheEpochsThatShowTheSymptom) {
  watched small;
  small.after(24, healthy()).after(8, with(symptoms[0]));
  EXPECT_THAT(text_of(small.health.notices()), HasSubstr("only 3.0 of 4.0 peers"));
}

/// The product of the mean rate and the mean time would be 70,541 samples here.
TEST(RunHealth, TheTargetBatchThatIsRequiredIsTheMeanOfWhatEachEpochNeeded) {
  auto fast = healthy();
  fast.samples_per_second = 2560;
  fast.download_seconds = 0;
  fast.round_seconds = 0.11;
  auto slow = healthy();
  slow.samples_per_second = 2.56;
  slow.download_seconds = 0;
  slow.round_seconds = 110;
  watched run;
  run.after(4, fast).after(4, slow);
  EXPECT_THAT(text_of(run.health.notices()), HasSubstr("raise --target-batch-size to 282 or more"))
    << "281.6 samples in 0.11 s, and as many in 110 s";
}

TEST(RunHealth, ADownloadOfAnotherPeerLastsFromTheFirstToTheLastTimeWithoutTheState) {
  run_health health{four_peers()};
  steady_time now{};
  auto see = [&](const std::map<peer_id, bool>& have_state) {
    now += std::chrono::seconds{1};
    health.see_peers(have_state, now);
    return health.download_seconds();
  };
  EXPECT_EQ(see({{id_of(1), true}}), 0);
  EXPECT_EQ(see({{id_of(1), true}, {id_of(2), false}}), 0);
  EXPECT_EQ(see({{id_of(1), true}, {id_of(2), false}, {id_of(3), false}}), 0);
  EXPECT_EQ(see({{id_of(1), true}, {id_of(2), false}, {id_of(3), false}}), 0) << "none has ended";
  EXPECT_EQ(see({{id_of(1), true}, {id_of(2), true}, {id_of(3), false}}), 2);
  EXPECT_EQ(see({{id_of(1), true}, {id_of(2), true}, {id_of(3), false}}), 2);
  EXPECT_EQ(see({{id_of(1), true}, {id_of(2), true}}), 2) << "peer 3 has left without the state";
  EXPECT_EQ(see({{id_of(1), true}, {id_of(2), true}, {id_of(3), true}}), 2)
    << "and returns with it";
  EXPECT_EQ(see({{id_of(1), false}}), 2);
  EXPECT_EQ(see({{id_of(1), true}}), 0) << "the newest download was too short to be seen";
}

/// 100 MB at 0.5 MB/s take 200 s; meanwhile 400 epochs produce 13.3 GB of updates, of which 1 GB is
/// kept.
slow_download slow() {
  return {.state_bytes = 100'000'000,
          .received_bytes = 15'000'000,
          .seconds = 30,
          .epoch_seconds = 0.5,
          .update_bytes = 33'000'000,
          .kept_bytes_max = 1'000'000'000,
          .target_batch_size = 128};
}

TEST(RunHealth, ADownloadThatWasGivenUpComesFirstUntilThePeerHasCaughtUp) {
  watched run;
  run.after(run_health::window, with(symptoms[0]));
  auto logged = run.health.download_given_up(slow());
  ASSERT_TRUE(logged);
  EXPECT_THAT(*logged, AllOf(HasSubstr("after 30 s"), HasSubstr("15.0 MB of a state of 100.0 MB"),
                             HasSubstr("0.50 MB/s"), HasSubstr("takes the others 0.50 s"),
                             HasSubstr("33.0 MB of updates, of which 1000 MB are kept"),
                             HasSubstr("target batch size of 2112")));
  auto again = slow();
  again.received_bytes = 0;
  EXPECT_EQ(run.health.download_given_up(again), std::nullopt) << "it holds already";
  EXPECT_TRUE(run.health.holds("slow_download"));
  EXPECT_THAT(text_of(run.health.notices()), StartsWith("this peer cannot keep up"));
  EXPECT_THAT(text_of(run.health.notices()), Not(HasSubstr("target batch size of")))
    << "without a measure nothing is promised";
  run.health.caught_up();
  EXPECT_FALSE(run.health.holds("slow_download"));
  EXPECT_THAT(text_of(run.health.notices()), StartsWith("in 32 of"));
}

TEST(RunHealth, TheSufficientTargetSuffices) {
  auto s = slow();
  auto target = sufficient_target_batch(s);
  s.epoch_seconds *= static_cast<double>(target) / static_cast<double>(s.target_batch_size);
  auto whole =
    s.seconds * static_cast<double>(s.state_bytes) / static_cast<double>(s.received_bytes);
  EXPECT_LE(whole / s.epoch_seconds * static_cast<double>(s.update_bytes),
            static_cast<double>(s.kept_bytes_max));
}

TEST(RunHealth, PassesThatAreNotFiniteAreLoggedAtMostEveryTenMinutes) {
  run_health health{four_peers()};
  steady_time now{};
  const std::string what_helps =
    " gave a loss or a gradient that is NaN or infinite, and the samples were dropped: lower --lr, "
    "clip with a smaller --max-gradient-norm, or, if --loss-scale is a number, make it smaller or "
    "dynamic";
  EXPECT_EQ(health.pass_not_finite(now), "1 pass" + what_helps);
  now += run_health::log_interval - std::chrono::nanoseconds{1};
  EXPECT_EQ(health.pass_not_finite(now), std::nullopt);
  EXPECT_EQ(health.pass_not_finite(now), std::nullopt);
  now += std::chrono::nanoseconds{1};
  EXPECT_EQ(health.pass_not_finite(now), "3 passes" + what_helps);
  EXPECT_EQ(health.pass_not_finite(now), std::nullopt);
}

TEST(RunHealth, AnEpochWithoutARoundCountsOnlyOnce) {
  watched run;
  run.after(32, with(symptoms[1]));
  EXPECT_THAT(text_of(run.health.notices()), Not(HasSubstr("took part")));
}

} // namespace

} // namespace waggle
