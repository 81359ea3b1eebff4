// slow_watch on rounds of real runs.

#include <fstream>
#include <sstream>

#include <gtest/gtest.h>

#include "runtime/watch/slow_peers.hpp"
#include "tests/support/ids.hpp"

namespace waggle {
namespace {

struct recorded_round {
  milliseconds at{0};
  watch::round_ended round;
  std::map<peer_id, reported_pass> passes;
};

recorded_round read(const std::string& line) {
  recorded_round out;
  std::istringstream in{line};
  int at = 0;
  in >> at >> out.round.duration_ms;
  out.at = milliseconds{at};
  out.round.outcome = "complete";
  for (std::size_t n = 0; n < 4; ++n) {
    watch::round_member m{id_of(n), n == 0, true, true};
    in >> m.first_ms.emplace() >> m.last_ms.emplace() >> m.result_last_ms.emplace();
    m.result_first_ms = m.result_last_ms;
    auto& pass = out.passes[m.peer];
    in >> pass.seconds >> pass.samples_per_second;
    pass.seconds /= 1000;
    out.round.members.push_back(m);
  }
  EXPECT_TRUE(in) << line;
  return out;
}

/// The runs of this kind.
std::vector<std::vector<recorded_round>> recorded(const std::string& kind) {
  std::ifstream file{WAGGLE_SOURCE_DIR "/tests/runtime/watch/recorded_rounds.txt"};
  std::vector<std::vector<recorded_round>> runs;
  bool wanted = false;
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with('#'))
      continue;
    if (line.find_first_of("abcdefghijklmnopqrstuvwxyz") != line.npos) {
      wanted = line == kind;
      if (wanted)
        runs.emplace_back();
    } else if (wanted) {
      runs.back().push_back(read(line));
    }
  }
  EXPECT_FALSE(runs.empty()) << kind;
  return runs;
}

TEST(RecordedRounds, APeerOnATenthOfACoreIsNamedWithItsPassesWithinFiveSecondsAndStays) {
  for (const auto& run : recorded("a tenth of a core")) {
    slow_watch judge;
    std::optional<milliseconds> named;
    for (const auto& each : run) {
      auto found =
        judge.add(each.round, comparable_passes(each.passes, true), steady_time{1h} + each.at);
      ASSERT_TRUE(found.peers.empty() || each.at > 0ms) << each.at.count();
      if (!found.peers.empty() && !named)
        named = each.at;
      if (!named)
        continue;
      ASSERT_EQ(found.peers.size(), 1U) << each.at.count();
      EXPECT_EQ(found.peers[0].peer, id_of(3));
      EXPECT_EQ(found.peers[0].cause, slow_cause::passes) << each.at.count();
    }
    ASSERT_TRUE(named);
    EXPECT_LE(*named, 5s);
  }
}

TEST(RecordedRounds, NobodyIsNamedInHealthyOnes) {
  for (const auto& run : recorded("healthy"))
    for (bool by_samples : {true, false}) {
      slow_watch judge;
      for (const auto& each : run)
        EXPECT_TRUE(
          judge
            .add(each.round, comparable_passes(each.passes, by_samples), steady_time{1h} + each.at)
            .peers.empty())
          << each.at.count();
    }
}

} // namespace
} // namespace waggle
