#include "runtime/allreduce/round_registry.hpp"

#include <array>

#include <gtest/gtest.h>

namespace waggle {
namespace {

inbound_event word_of(std::uint8_t round) {
  wire::round_prepared what;
  what.round.bytes[0] = std::byte{round};
  return {{}, what, {}, nullptr};
}

TEST(RoundRegistry, KeepsNoMoreForUnknownRoundsThanItsLimit) {
  round_registry::limits limits;
  limits.parked_events_max = 2;
  round_registry rounds{limits, [](const peer_record&, wire::event) {}};
  EXPECT_TRUE(rounds.deliver(word_of(1), {}));
  EXPECT_TRUE(rounds.deliver(word_of(2), {}));
  EXPECT_FALSE(rounds.deliver(word_of(3), {})) << "the caller counts what was dropped";
  EXPECT_EQ(rounds.forget_old(steady_time{} + limits.parked_for), 2U);
  EXPECT_TRUE(rounds.deliver(word_of(3), {})) << "there is room again";
}

/// Counts what is given back to a peer's window.
class counting_link final : public net::link {
public:
  [[nodiscard]] const peer_record& remote() const override { return nobody_; }
  [[nodiscard]] bool outbound() const override { return false; }
  void start(net::link_events) override {}
  bool send(net::frame) override { return false; }
  void grant(std::size_t bytes) override { granted += bytes; }
  void close(failure) override {}

  std::size_t granted = 0;

private:
  peer_record nobody_;
};

TEST(RoundRegistry, KeepsATakeoverForARoundThatMayBegin) {
  std::vector<wire::event> said;
  round_registry rounds{
    {}, [&](const peer_record&, wire::event what) { said.push_back(std::move(what)); }};
  wire::round_takeover what;
  what.round.bytes[0] = std::byte{9};
  EXPECT_TRUE(rounds.deliver({{}, what, {}, nullptr}, {}));
  EXPECT_TRUE(said.empty()) << "whoever says that it knows nothing is left out";
  // The round will not begin here.
  rounds.finish(what.round, {what.round, 0, false, {}, false, false}, {});
  ASSERT_EQ(said.size(), 1U);
  EXPECT_FALSE(std::get<wire::round_standing>(said[0]).knows_view) << "we promise nothing";
}

TEST(RoundRegistry, ReleasesWhatCameForARoundThatWillNotBegin) {
  round_registry::limits limits;
  limits.parked_events_max = 1;
  round_registry rounds{limits, [](const peer_record&, wire::event) {}};
  auto link = std::make_shared<counting_link>();
  std::array<std::byte, 40> bytes{};
  wire::part part;
  part.round.bytes[0] = std::byte{3};
  EXPECT_TRUE(rounds.deliver({{}, part, copy_to_payload(bytes), link}, {}));
  EXPECT_EQ(link->granted, 0U);
  rounds.finish(part.round, {part.round, 0, false, {}, false, false}, {});
  EXPECT_EQ(link->granted, 40U);
  EXPECT_TRUE(rounds.deliver(word_of(4), {})) << "there is room for others again";
}

} // namespace
} // namespace waggle
