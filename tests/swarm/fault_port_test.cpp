#include "tests/support/fault_port.hpp"

#include <gtest/gtest.h>

#include "tests/support/fake_signatures.hpp"

namespace waggle::testing {
namespace {

using moment = fault_point::moment;

/// Records the calls that reach it.
struct recorder final : fake_signing_port {
  recorder() : fake_signing_port(peer_id{}) {}
  void send(const peer_record&, wire::event what, payload) override { sent.push_back(what); }
  bool reduce(const reduce_part&) override { return false; }
  digest secret(const round_id&, std::uint32_t) override { return {}; }
  void count_part() override { ++parts; }
  void count_refused(ec) override { ++refused; }
  void log(const std::string&) override { ++said; }
  void finished(round_finished) override { ++ended; }

  std::vector<wire::event> sent;
  int parts = 0, refused = 0, said = 0, ended = 0;
};

wire::part part_of(wire::part_kind kind) {
  wire::part head;
  head.kind = kind;
  return head;
}

struct FaultPort : ::testing::Test {
  fault_port breaking_at(fault_point where) {
    return {inner, where, [this] { ++strikes; }};
  }
  static round_finished ending(round_outcome outcome) {
    round_finished how;
    how.report.outcome = outcome;
    return how;
  }

  std::shared_ptr<recorder> inner = std::make_shared<recorder>();
  int strikes = 0;
};

TEST_F(FaultPort, StrikesOnceAtTheChosenContributionAndPassesAllOn) {
  auto port = breaking_at({moment::sent, 2});
  port.send({}, part_of(wire::part_kind::contribution), {});
  port.send({}, part_of(wire::part_kind::result), {});
  EXPECT_EQ(strikes, 0);
  port.send({}, part_of(wire::part_kind::contribution), {});
  EXPECT_EQ(strikes, 1);
  port.send({}, part_of(wire::part_kind::contribution), {});
  EXPECT_EQ(strikes, 1);
  EXPECT_EQ(inner->sent.size(), 4U);
}

TEST_F(FaultPort, CountsResultsAndWhatComesInApart) {
  auto result = breaking_at({moment::result, 1});
  result.send({}, part_of(wire::part_kind::contribution), {});
  EXPECT_EQ(strikes, 0);
  result.send({}, part_of(wire::part_kind::result), {});
  EXPECT_EQ(strikes, 1);
  auto received = breaking_at({moment::received, 2});
  received.count_part();
  EXPECT_EQ(strikes, 1);
  received.count_part();
  EXPECT_EQ(strikes, 2);
  EXPECT_EQ(inner->parts, 2);
}

TEST_F(FaultPort, StrikesBeforeTheWordThatTheResultIsThere) {
  fault_port port{inner, {moment::prepared, 1}, [this] {
                    ++strikes;
                    EXPECT_TRUE(inner->sent.empty());
                  }};
  port.send({}, wire::round_prepared{}, {});
  port.send({}, wire::round_prepared{}, {});
  EXPECT_EQ(strikes, 1);
  EXPECT_EQ(inner->sent.size(), 2U);
}

TEST_F(FaultPort, StrikesAtACommitAndNotAtAFailure) {
  auto port = breaking_at({moment::committed, 1});
  port.finished(ending(round_outcome::failed));
  EXPECT_EQ(strikes, 0);
  auto another = breaking_at({moment::committed, 1});
  another.finished(ending(round_outcome::shrunk));
  EXPECT_EQ(strikes, 1);
  EXPECT_EQ(inner->ended, 2);
}

TEST_F(FaultPort, StandsInTheChosenRoundAndInLaterOnes) {
  auto around = break_in_round(2, parse_fault_point("sent:1"), 0); // signal 0 does nothing
  EXPECT_EQ(around(inner), inner);
  EXPECT_NE(around(inner), inner);
  EXPECT_NE(around(inner), inner) << "the second round may fail before it gets that far";
}

} // namespace
} // namespace waggle::testing
