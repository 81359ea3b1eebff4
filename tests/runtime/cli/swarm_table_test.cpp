#include "runtime/cli/swarm_table.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/cli/text_table.hpp"

using namespace waggle;
using ::testing::ElementsAre, ::testing::HasSubstr, ::testing::Not;

namespace {

constexpr terminal_size wide{text_table::unlimited, text_table::unlimited};

swarm_summary::peer a_peer() {
  swarm_summary::peer p;
  p.last.id = "0123456789abcdef";
  p.last.phase = "training";
  p.last.epoch = 5;
  p.last.loss = 1.5;
  p.last.first_loss = 4;
  p.last.used = 51200;
  p.last.samples_toward_epoch = 17;
  p.last.bytes_received = 1'000'000;
  p.last.bytes_sent = 2'000'000;
  p.last.bytes_shared = 39'300'000;
  p.last.complete = 12;
  p.last.last_outcome = "complete";
  return p;
}

} // namespace

TEST(LiveTable, ShowsOnePeerPerLine) {
  EXPECT_THAT(
    live_table(12.4, {a_peer(), {}}, wide),
    ElementsAre(
      "   12s  peer      state      epoch    loss  samples  MB moved  toward epoch  last round",
      "        01234567  training       5   1.500   51,200      42.3            17  complete",
      "        ?         -              0       -        0       0.0             0"));
}

TEST(LiveTable, SaysWhoIsKilledAndWhoDoesNotAnswer) {
  auto killed = a_peer();
  killed.killed = killed.silent = true;
  auto silent = a_peer();
  silent.silent = true;
  auto lines = live_table(0, {killed, silent}, wide);
  EXPECT_THAT(lines[1], HasSubstr("  killed  "));
  EXPECT_THAT(lines[2], HasSubstr("  no answer  "));
}

TEST(LiveTable, FitsIntoNarrowTerminals) {
  EXPECT_THAT(live_table(12, {a_peer()}, {60, 24}),
              ElementsAre("   12s  peer      state      epoch    loss  samples",
                          "        01234567  training       5   1.500   51,200"));
  EXPECT_THAT(live_table(12, {a_peer()}, {90, 24})[0], ::testing::EndsWith("  last round"));
  EXPECT_THAT(live_table(12, {a_peer()}, {40, 24})[0], ::testing::EndsWith("  epoch"));
}

TEST(LiveTable, NoLineReachesTheLastColumnOfTheTerminal) {
  // A terminal that wraps has more lines than were printed, and the next table would be drawn too
  // low.
  auto peer = a_peer();
  peer.last.phase = std::string(1000, 'b');
  peer.last.last_outcome = std::string(1000, 'c');
  peer.last.used = ~std::uint64_t{0};
  for (std::size_t columns = 2; columns < 200; ++columns)
    for (const auto& line : live_table(1e6, {peer, a_peer()}, {columns, 24}))
      EXPECT_LT(line.size(), columns);
}

TEST(LiveTable, IsNoHigherThanTheTerminal) {
  std::vector<swarm_summary::peer> peers(30, a_peer());
  for (std::size_t lines = 4; lines < 40; ++lines)
    for (std::size_t count : {1U, 2U, 3U, 21U, 22U, 23U, 30U}) {
      std::vector<swarm_summary::peer> some(peers.begin(), peers.begin() + count);
      auto table = live_table(0, some, {80, lines});
      EXPECT_LT(table.size(), lines) << count << " peers: the cursor needs a line, too";
      auto rows = table.size() - 1;
      if (rows != count) {
        EXPECT_EQ(table.back(), "        and " + std::to_string(count - rows + 1) + " more");
      }
    }
  EXPECT_EQ(live_table(0, peers, {80, 32}).size(), 31U) << "all are shown where they fit";
}

TEST(LiveTable, WordsFromAPeerOfAnotherVersionDoNotBreakTheLine) {
  auto snapshot = parse_snapshot(
    R"({"peer":"\u001b[2J\u001b[H0123","phase":"reconsidering\nthings","last_outcome":"\u009b1m"})");
  ASSERT_TRUE(snapshot);
  swarm_summary::peer p{.last = *snapshot};
  auto lines = live_table(0, {p, a_peer()}, wide);
  ASSERT_EQ(lines.size(), 3U);
  for (const auto& line : lines)
    for (char c : line)
      EXPECT_TRUE(c >= ' ' && c <= '~') << static_cast<int>(c);
  EXPECT_THAT(lines[1], HasSubstr("  reconside...  "));
}

TEST(SummaryTable, ItsColumnsMeanTheSameAsThoseOfTheLiveTable) {
  auto late = a_peer();
  late.joined_late = true;
  auto lines = summary_table({a_peer(), late}, text_table::unlimited);
  EXPECT_THAT(lines, ElementsAre("peer      state         epoch    loss  samples  MB moved  first "
                                 "loss  rounds complete  shrunk  failed",
                                 "01234567  training          5   1.500   51,200      42.3       "
                                 "4.000               12       0       0",
                                 "01234567  joined later      5   1.500   51,200      42.3       "
                                 "4.000               12       0       0"));
  EXPECT_THAT(live_table(0, {a_peer()}, wide)[1], HasSubstr("5   1.500   51,200      42.3"));
}

TEST(SummaryTable, FitsIntoNarrowTerminals) {
  for (const auto& line : summary_table({a_peer()}, 59))
    EXPECT_LE(line.size(), 59U);
  EXPECT_THAT(summary_table({a_peer()}, 59)[0], HasSubstr("MB moved"));
  EXPECT_THAT(summary_table({a_peer()}, 59)[0], Not(HasSubstr("first")));
}
