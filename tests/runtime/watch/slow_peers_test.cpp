#include "runtime/watch/slow_peers.hpp"

#include <functional>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/ids.hpp"

namespace waggle {
namespace {

using testing::HasSubstr, testing::IsEmpty, testing::SizeIs;

/// Rounds of four members as member 0 sees them: healthy, unless `plant` changes a member.
std::deque<watch::round_ended> rounds(
  std::size_t count,
  const std::function<void(std::size_t round, std::vector<watch::round_member>&)>& plant = {}) {
  std::deque<watch::round_ended> out;
  for (std::size_t i = 0; i < count; ++i) {
    watch::round_ended round{.outcome = "complete"};
    auto jitter = static_cast<double>(i % 3);
    for (std::size_t n = 0; n < 4; ++n) {
      watch::round_member m{id_of(n), n == 0, true, true};
      m.first_ms = 1 + jitter;
      m.last_ms = 20 + jitter + static_cast<double>(n);
      m.result_first_ms = 26 + jitter;
      m.result_last_ms = 40 + jitter - static_cast<double>(n);
      if (n > 0)
        m.rtt_ms = 0.5;
      round.members.push_back(m);
    }
    if (plant)
      plant(i, round.members);
    for (const auto& m : round.members)
      round.duration_ms =
        std::max({round.duration_ms, m.last_ms.value_or(0), m.result_last_ms.value_or(0)});
    out.push_back(std::move(round));
  }
  return out;
}

/// Member 2 is late by `ms` from its first contribution on, and everybody's results with it.
void delay_start(std::vector<watch::round_member>& members, double ms) {
  *members[2].first_ms += ms;
  *members[2].last_ms += ms;
  for (auto& m : members) {
    *m.result_first_ms += ms;
    *m.result_last_ms += ms;
  }
}

slow_peer only(const slow_report& report) {
  EXPECT_THAT(report.peers, SizeIs(1));
  EXPECT_EQ(report.cannot_tell, "");
  return report.peers.empty() ? slow_peer{} : report.peers.front();
}

TEST(SlowPeers, NamesNobodyInHealthyRounds) {
  EXPECT_THAT(find_slow(rounds(16), {}).peers, IsEmpty());
  auto fast = rounds(16);
  for (auto& round : fast) // of a fast network: large shares, but no times
    for (auto& m : round.members)
      for (auto field : {&watch::round_member::first_ms, &watch::round_member::last_ms,
                         &watch::round_member::result_last_ms})
        m.*field = *(m.*field) / 10;
  EXPECT_THAT(find_slow(fast, {}).peers, IsEmpty());
}

TEST(SlowPeers, NamesNobodyBeforeFourRoundsOrForLessThanAFifth) {
  auto late = [](double ms) {
    return [ms](std::size_t, auto& members) { delay_start(members, ms); };
  };
  EXPECT_THAT(find_slow(rounds(3, late(300)), {}).peers, IsEmpty());
  EXPECT_EQ(only(find_slow(rounds(4, late(300)), {})).peer, id_of(2));
  EXPECT_THAT(find_slow(rounds(16, late(8)), {}).peers, IsEmpty());
}

TEST(SlowPeers, TellsLongPassesFromALateStart) {
  auto late = rounds(16, [](std::size_t, auto& members) { delay_start(members, 400); });
  auto found = only(find_slow(late, {}));
  EXPECT_EQ(found.cause, slow_cause::starts_late);
  EXPECT_NEAR(found.number, 400, 1);
  EXPECT_EQ(found.text, "it starts 400 ms after the others");
  found =
    only(find_slow(late, {{id_of(0), 0.2}, {id_of(1), 0.25}, {id_of(2), 2.1}, {id_of(3), 0.2}}));
  EXPECT_EQ(found.peer, id_of(2));
  EXPECT_EQ(found.cause, slow_cause::passes);
  EXPECT_EQ(found.text, "it reports passes of 2.1 s, the others of 200 ms");
  EXPECT_EQ(only(find_slow(late, {{id_of(0), 0.2}, {id_of(2), 0.21}})).cause,
            slow_cause::starts_late);
}

TEST(SlowPeers, FindsMuchLongerPassesWhereRoundsDoNotShowThem) {
  auto of = [](double seconds, std::size_t count = 16) {
    return find_slow(rounds(count),
                     {{id_of(0), 0.2}, {id_of(1), 0.2}, {id_of(2), seconds}, {id_of(3), 0.3}});
  };
  auto found = only(of(2.1));
  EXPECT_EQ(found.peer, id_of(2));
  EXPECT_EQ(found.cause, slow_cause::passes);
  EXPECT_NEAR(found.number, 2100, 1);
  EXPECT_EQ(found.text, "it reports passes of 2.1 s, the others of 200 ms");
  EXPECT_THAT(of(0.55).peers, IsEmpty()) << "another machine";
  EXPECT_THAT(of(2.1, 3).peers, IsEmpty()) << "before four rounds";
  EXPECT_THAT(find_slow(rounds(16), {{id_of(0), 0.002}, {id_of(1), 0.002}, {id_of(2), 0.02}}).peers,
              IsEmpty())
    << "a busy machine";
}

TEST(SlowPeers, WhatCostsMoreIsTheCauseOfASlowMachine) {
  auto late = rounds(16, [](std::size_t, auto& members) { *members[2].result_last_ms += 150; });
  auto cause = [&](double seconds) {
    return only(find_slow(late, {{id_of(0), 0.1}, {id_of(1), 0.1}, {id_of(2), seconds}})).cause;
  };
  EXPECT_EQ(cause(0.1), slow_cause::reduces_slowly);
  EXPECT_EQ(cause(1), slow_cause::passes);
}

TEST(SlowPeers, FindsTheOneThatSendsSlowly) {
  auto found = only(find_slow(rounds(16,
                                     [](std::size_t, auto& members) {
                                       *members[3].last_ms += 900;
                                       for (auto& m : members) {
                                         *m.result_first_ms += 900;
                                         *m.result_last_ms += 900;
                                       }
                                       *members[3].result_last_ms += 800; // by the same uplink
                                     }),
                              {}));
  EXPECT_EQ(found.peer, id_of(3));
  EXPECT_EQ(found.cause, slow_cause::sends_slowly);
  EXPECT_THAT(found.text, HasSubstr("those of the others"));
}

TEST(SlowPeers, FindsTheOneThatReducesSlowly) {
  auto found = only(find_slow(
    rounds(16, [](std::size_t, auto& members) { *members[1].result_last_ms += 200; }), {}));
  EXPECT_EQ(found.peer, id_of(1));
  EXPECT_EQ(found.cause, slow_cause::reduces_slowly);
  EXPECT_NEAR(found.number, 200, 5);
}

TEST(SlowPeers, FindsTheOneThatIsFar) {
  auto found = only(find_slow(rounds(16,
                                     [](std::size_t, auto& members) {
                                       delay_start(members, 120);
                                       *members[2].result_last_ms += 80;
                                       members[2].rtt_ms = 80;
                                     }),
                              {}));
  EXPECT_EQ(found.peer, id_of(2));
  EXPECT_EQ(found.cause, slow_cause::far);
  EXPECT_EQ(found.number, 80);
}

TEST(SlowPeers, FindsTheOneThatPauses) {
  auto found = only(find_slow(
    rounds(16, [](std::size_t i, auto& members) { delay_start(members, i % 5 == 0 ? 300 : 0); }),
    {}));
  EXPECT_EQ(found.peer, id_of(2));
  EXPECT_EQ(found.cause, slow_cause::pauses);
  EXPECT_NEAR(found.number, 300, 2);
  EXPECT_THAT(found.text, HasSubstr(" late in 4 of the last 16 rounds, and in time otherwise"));
  auto once =
    rounds(16, [](std::size_t i, auto& members) { delay_start(members, i == 5 ? 300 : 0); });
  EXPECT_THAT(find_slow(once, {}).peers, IsEmpty());
}

TEST(SlowPeers, WhoBecomesSlowIsNamedAfterFourRoundsAndDoesNotPause) {
  auto late = [](auto when) {
    return find_slow(
      rounds(16, [=](std::size_t i, auto& members) { delay_start(members, when(i) ? 300 : 0); }),
      {});
  };
  EXPECT_EQ(only(late([](auto i) { return i >= 12; })).cause, slow_cause::starts_late);
  EXPECT_THAT(late([](auto i) { return i >= 13; }).peers, IsEmpty());
  EXPECT_THAT(late([](auto i) { return i < 6; }).peers, IsEmpty()) << "it has ended";
  EXPECT_EQ(only(late([](auto i) { return i >= 11 && i != 14; })).cause, slow_cause::starts_late)
    << "once in time";
  EXPECT_EQ(only(late([](auto i) { return i >= 9 && i % 2 == 1; })).cause, slow_cause::pauses);
}

TEST(SlowPeers, FindsTheOneThatSendsSlowlyWhatFitsIntoOnePart) {
  auto found = find_slow(rounds(16,
                                [](std::size_t i, auto& members) {
                                  for (auto& m : members)
                                    m.last_ms = m.first_ms;
                                  delay_start(members, 600);
                                  members[2].last_ms = members[2].first_ms;
                                  *members[2].result_last_ms += 1400;
                                  // Its part for this reducer is its last one, to that one now
                                  // and then.
                                  *members[1].result_last_ms += 220;
                                  *members[3].result_last_ms += i % 4 == 0 ? 500 : 0;
                                }),
                         {{id_of(0), 0.2}, {id_of(1), 0.2}, {id_of(2), 0.2}, {id_of(3), 0.2}});
  EXPECT_EQ(only(found).peer, id_of(2));
  EXPECT_EQ(only(found).cause, slow_cause::sends_slowly);
  EXPECT_THAT(only(found).text, HasSubstr("600 ms to arrive"));
}

TEST(SlowPeers, NamesAtMostTwoTheSlowestFirst) {
  auto found = find_slow(rounds(16,
                                [](std::size_t, auto& members) {
                                  for (std::size_t n : {1U, 2U, 3U})
                                    *members[n].result_last_ms +=
                                      100.0 * static_cast<double>(n * n * n);
                                }),
                         {});
  ASSERT_THAT(found.peers, SizeIs(2));
  EXPECT_EQ(found.peers.front().peer, id_of(3));
}

TEST(SlowPeers, APeerThatReducesNothingSaysThatItCannotTell) {
  auto blind = rounds(16, [](std::size_t, auto& members) {
    members[0].reduces = false;
    for (auto& m : members)
      if (!m.self)
        m.first_ms.reset(), m.last_ms.reset();
    *members[2].result_last_ms += 500;
  });
  auto found = find_slow(blind, {});
  EXPECT_THAT(found.peers, IsEmpty());
  EXPECT_THAT(found.cannot_tell, HasSubstr("reduces nothing"));
  EXPECT_THAT(find_slow(blind, {{id_of(0), 0.1}, {id_of(1), 0.1}, {id_of(2), 1}}).peers, SizeIs(1))
    << "reports tell";
}

TEST(SlowPeers, ForgetsMembersThatAreGone) {
  auto late = rounds(16, [](std::size_t, auto& members) { delay_start(members, 300); });
  late.back().members.erase(late.back().members.begin() + 2);
  EXPECT_THAT(find_slow(late, {}).peers, IsEmpty());
}

TEST(RoundWindow, KeepsTheRoundOfEachHalfSecondInWhichSomethingCameLatest) {
  round_window window;
  auto all = rounds(2);
  for (int i = 0; i < 100; ++i) {
    auto round = all[0];
    round.duration_ms = 100; // longest where nobody is late
    if (i % 10 == 3) {
      delay_start(round.members, 80);
      round.duration_ms = 90;
    }
    window.add(round, steady_time{} + i * 100ms);
  }
  EXPECT_LE(window.rounds().size(), round_window::count);
  auto slow = std::count_if(window.rounds().begin(), window.rounds().end(),
                            [](const auto& round) { return round.duration_ms == 90; });
  EXPECT_GE(slow, 7);
  auto failed = all[0];
  failed.outcome = "failed";
  round_window other;
  other.add(failed, steady_time{});
  EXPECT_TRUE(other.rounds().empty());
}

TEST(SlowWatch, NamesAPeerOnceItHasBeenFoundForAWhileAndForgetsItLater) {
  slow_watch judge;
  auto late = rounds(1, [](std::size_t, auto& members) { delay_start(members, 300); })[0];
  auto healthy = rounds(1)[0];
  steady_time now{1h};
  auto add = [&](const watch::round_ended& round, milliseconds after = 500ms) {
    now += after;
    return judge.add(round, {}, now).peers.size();
  };
  for (int i = 0; i < 23; ++i) // found from the fourth round on
    EXPECT_EQ(add(late), 0U) << i;
  EXPECT_EQ(add(late), 1U);
  for (int i = 0; i < 5; ++i) // while most of the last rounds are late, and then for a while
    EXPECT_EQ(add(healthy), 1U) << i;
  std::size_t named = 1;
  for (int i = 0; i < 30; ++i)
    named = add(healthy);
  EXPECT_EQ(named, 0U);
}

/// Passes of peer `n` that take so long, and of the others.
std::map<peer_id, double> passes_of(std::size_t n, double seconds) {
  std::map<peer_id, double> out{{id_of(0), 0.2}, {id_of(1), 0.2}, {id_of(2), 0.2}, {id_of(3), 0.2}};
  out[id_of(n)] = seconds;
  return out;
}

TEST(SlowWatch, TheCauseKeepsStillUntilAnotherOneHasLasted) {
  slow_watch judge;
  auto late = rounds(1, [](std::size_t, auto& members) { delay_start(members, 300); })[0];
  steady_time now{1h};
  std::vector<slow_cause> causes; // each that it is named with
  auto add = [&](double seconds) {
    now += 500ms;
    auto found = judge.add(late, passes_of(2, seconds), now);
    if (!found.peers.empty() && (causes.empty() || causes.back() != found.peers[0].cause))
      causes.push_back(found.peers[0].cause);
  };
  for (int i = 0; i < 30; ++i)
    add(0.2);
  for (int i = 0; i < 200; ++i) // between both causes, as a busy machine is
    add(i / 9 % 2 == 0 ? 0.35 : 0.2);
  EXPECT_THAT(causes, testing::ElementsAre(slow_cause::starts_late));
  for (int i = 0; i < 30; ++i)
    add(0.35);
  EXPECT_THAT(causes, testing::ElementsAre(slow_cause::starts_late, slow_cause::passes));
}

TEST(SlowWatch, NamesNobodyWhoIsLateForSomeSeconds) {
  for (auto apart : {50ms, 500ms, 2000ms}) {
    slow_watch judge;
    steady_time now{1h};
    for (int i = 0; i < 200; ++i) {
      now += apart;
      bool is_late = now < steady_time{1h} + 7s;
      auto round =
        rounds(1, [&](std::size_t, auto& members) { delay_start(members, is_late ? 300 : 0); })[0];
      EXPECT_THAT(judge.add(round, {}, now).peers, IsEmpty()) << i << " " << apart.count();
    }
  }
}

/// Otherwise a run with a round a minute would wait for a quarter of an hour.
TEST(SlowWatch, WhereRoundsAreRareTwoMinutesAreEnough) {
  slow_watch judge;
  auto late = rounds(1, [](std::size_t, auto& members) { delay_start(members, 900); })[0];
  steady_time now{1h};
  int named = 0;
  for (int i = 1; i <= 10; ++i) {
    now += 60s;
    if (!judge.add(late, {}, now).peers.empty() && named == 0)
      named = i;
  }
  EXPECT_EQ(named, 6);
}

TEST(SlowPeers, SaysWhoAddsLittle) {
  auto with = [](std::optional<std::uint64_t> samples, bool contributes = true) {
    auto all = rounds(16);
    for (auto& round : all)
      for (auto& m : round.members) {
        m.samples = m.peer == id_of(2) ? samples : 64;
        m.contributed = m.peer != id_of(2) || contributes;
      }
    return all;
  };
  auto found = only(find_slow(with(3), passes_of(2, 0.2)));
  EXPECT_EQ(found.peer, id_of(2));
  EXPECT_EQ(found.cause, slow_cause::adds_little);
  EXPECT_EQ(found.text, "it adds 1.5 % of the samples, and an equal share is 25 %");
  EXPECT_THAT(only(find_slow(with({}, false), passes_of(2, 0.2))).text, HasSubstr("adds 0 %"));
  EXPECT_THAT(find_slow(with(20), passes_of(2, 0.2)).peers, IsEmpty());
  EXPECT_THAT(find_slow(with({}), passes_of(2, 0.2)).peers, IsEmpty()) << "weights of another kind";
  auto trains = passes_of(2, 0.2);
  trains.erase(id_of(2));
  EXPECT_THAT(find_slow(with({}, false), trains).peers, IsEmpty()) << "a helper adds nothing";
  EXPECT_EQ(only(find_slow(with(3), passes_of(2, 2.1))).cause, slow_cause::passes)
    << "which explains it";
}

TEST(SlowWatch, NamesNobodyForWhatComesAndGoes) {
  slow_watch judge;
  steady_time now{1h};
  for (int i = 0; i < 200; ++i) { // now this one, now that one
    auto round = rounds(1, [&](std::size_t, auto& members) {
      *members[1 + static_cast<std::size_t>(i / 3) % 3].result_last_ms += 60;
    })[0];
    now += 500ms;
    EXPECT_THAT(judge.add(round, {}, now).peers, IsEmpty()) << i;
  }
}

} // namespace
} // namespace waggle
