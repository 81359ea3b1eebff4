// The fault matrix of hivemind's averager tests, with its five averagers, tensors, part size and
// timeouts, and a stronger condition: every element of the survivors' results is the mean over the
// contributors that they report, and their step ends within the reducer timeout plus a second.

#include <array>
#include <cmath>
#include <map>
#include <numeric>

#include "tests/actors/averager/averaging_world.hpp"

namespace waggle::testing {
namespace {

enum class trouble : std::uint8_t {
  none,
  fail_before,   // after matchmaking: takes no part, and sends nothing
  fail_sending,  // lost after its first part to the last reducer
  slow_sending,  // sends nothing for 10 s after its first part to the last reducer
  fail_reducing, // lost after three results to a sender
  slow_reducing, // sends nothing to a sender for 10 s after three results to it
  cancel,        // leaves before it sends anything
};

constexpr std::array<const char*, 7> names{
  "None", "FailBefore", "FailSending", "SlowSending", "FailReducing", "SlowReducing", "Cancel"};
std::string name_of(trouble what) {
  return names[static_cast<std::size_t>(what)];
}

struct row {
  trouble first;  // of peer 0, which leads
  trouble second; // of peer 1, a client
};

constexpr std::array<std::uint64_t, 4> tensors{16 * 1'024, 3 * 8'192, 4 * 4 * 4, 1'024 * 1'024};
constexpr std::size_t peer_count = 5;
constexpr std::size_t last_reducer = 4;
constexpr std::uint32_t part_bytes = 65'536;
constexpr milliseconds sender_timeout = 500ms; // next_chunk_timeout
constexpr milliseconds reducer_timeout = 2 * sender_timeout;

class FaultMatrix : public averaging_world, public ::testing::WithParamInterface<row> {
protected:
  void SetUp() override {
    group_size = peer_count;
    change_plan = [](round_plan& plan) { plan.part_elements = part_bytes / sizeof(float); };
    averaging_config config;
    config.round.stall_timeout = sender_timeout;
    config.round.takeover_timeout = 300ms; // request_timeout
    config.round.deadline = 5s;            // allreduce_timeout
    for (std::size_t i = 0; i < peer_count; ++i)
      add(config, i == 1 ? member_mode::client : member_mode::node);
    lets_through = [this](std::size_t from, const notify_peer& msg) {
      return from > 1 || arrives(from, msg);
    };
    random_source random{20};
    for (std::size_t i = 0; i < peer_count; ++i) {
      inputs.emplace_back(std::accumulate(tensors.begin(), tensors.end(), std::uint64_t{0}));
      for (auto& x : inputs.back())
        x = static_cast<float>(2 * random.unit() - 1);
    }
  }
  ~FaultMatrix() override { end_actors(); }

  [[nodiscard]] trouble of(std::size_t who) const {
    return who == 0 ? GetParam().first : who == 1 ? GetParam().second : trouble::none;
  }

  /// The fault of this peer happens now.
  void strike() { last_fault = sched.clock().now(); }
  void vanish(std::size_t who) {
    gone[who] = true;
    strike();
    caf::anon_send_exit(peers[who]->group, caf::exit_reason::kill);
  }

  bool arrives(std::size_t from, const notify_peer& msg) {
    if (gone[from])
      return false;
    const auto* part = std::get_if<wire::part>(&msg.what);
    if (part == nullptr)
      return true;
    bool to_last = msg.to.id == peers[last_reducer]->ctx.record.id;
    bool sends = part->kind == wire::part_kind::contribution && to_last;
    bool reduces = part->kind == wire::part_kind::result;
    switch (of(from)) {
      case trouble::fail_sending:
      case trouble::slow_sending:
        if (!sends || ++parts_sent[from] == 1)
          return true;
        break;
      case trouble::fail_reducing:
      case trouble::slow_reducing:
        if (!reduces || ++results_sent[{from, msg.to.id}] <= 3)
          return true;
        break;
      default:
        return true;
    }
    if (of(from) == trouble::fail_sending || of(from) == trouble::fail_reducing)
      vanish(from);
    else if (!std::exchange(slow[from], true))
      strike();
    return false; // ten seconds later no other peer waits for it
  }

  std::vector<float> mean_over(const std::vector<peer_id>& contributors) {
    std::vector<double> sum(inputs[0].size());
    for (std::size_t i = 0; i < peer_count; ++i)
      if (std::find(contributors.begin(), contributors.end(), peers[i]->ctx.record.id)
          != contributors.end())
        for (std::size_t k = 0; k < sum.size(); ++k)
          sum[k] += inputs[i][k];
    std::vector<float> out;
    for (auto x : sum)
      out.push_back(static_cast<float>(x / static_cast<double>(contributors.size())));
    return out;
  }

  std::vector<std::vector<float>> inputs;
  std::array<bool, 2> gone{};
  std::array<bool, 2> slow{};
  std::array<int, 2> parts_sent{};
  std::map<std::pair<std::size_t, peer_id>, int> results_sent;
  steady_time last_fault{};
};

TEST_P(FaultMatrix, SurvivorsHaveTheMeanOverThoseTheyReport) {
  for (std::size_t i = 0; i < peer_count; ++i)
    (void)find(i, inputs[i].size());
  last_fault = sched.clock().now();
  std::vector<pending<group_round>> rounds(peer_count);
  for (std::size_t i = 0; i < peer_count; ++i)
    if (of(i) != trouble::fail_before && of(i) != trouble::cancel) {
      average_in_group what{.values = vector(inputs[i]), .weight = 1, .deadline = 5s};
      rounds[i] = ask_later<group_round>(peers[i]->group, std::move(what));
    }
  for (std::size_t i = 0; i < 2; ++i) {
    if (of(i) != trouble::cancel)
      continue;
    pass(100ms);
    strike();
    tell(peers[i]->group, quit_group{});
  }
  auto bound = reducer_timeout + 1s;
  while (sched.clock().now() < last_fault + bound)
    pass(10ms);
  const round_report* first = nullptr;
  std::vector<round_report> ended;
  for (std::size_t i = 2; i < peer_count; ++i) {
    ASSERT_TRUE(rounds[i].answered())
      << "peer " << i << " is not done " << bound.count() << " ms after the fault";
    auto round = rounds[i].get();
    ended.push_back(round->report);
  }
  for (std::size_t i = 2; i < peer_count; ++i) {
    const auto& report = ended[i - 2];
    ASSERT_NE(report.outcome, round_outcome::failed)
      << "peer " << i << ": " << to_string(report.why);
    ASSERT_TRUE(report.values);
    for (std::size_t good = 2; good < peer_count; ++good)
      EXPECT_NE(std::find(report.contributors.begin(), report.contributors.end(),
                          peers[good]->ctx.record.id),
                report.contributors.end())
        << "peer " << good << " had no fault";
    if (first == nullptr)
      first = &report;
    EXPECT_EQ(report.contributors, first->contributors);
    EXPECT_EQ(report.weight_sum, first->weight_sum);
    ASSERT_EQ(report.values->size(), first->values->size());
    EXPECT_EQ(std::memcmp(report.values->data(), first->values->data(),
                          report.values->size() * sizeof(float)),
              0)
      << "peer " << i << " has other bytes than peer 2";
  }
  auto expected = mean_over(first->contributors);
  std::size_t wrong = 0;
  for (std::size_t k = 0; k < expected.size(); ++k)
    wrong += std::abs((*first->values)[k] - expected[k]) > 1e-5F ? 1 : 0;
  EXPECT_EQ(wrong, 0U) << "of " << expected.size() << " elements";
  // A peer that did not begin, or cancelled before it sent anything, is in no mean.
  for (std::size_t i = 0; i < 2; ++i)
    if (of(i) == trouble::fail_before || of(i) == trouble::cancel) {
      EXPECT_EQ(
        std::find(first->contributors.begin(), first->contributors.end(), peers[i]->ctx.record.id),
        first->contributors.end());
    }
}

INSTANTIATE_TEST_SUITE_P(
  Rows, FaultMatrix,
  ::testing::Values(row{trouble::none, trouble::fail_before},
                    row{trouble::fail_before, trouble::fail_before},
                    row{trouble::fail_sending, trouble::fail_before},
                    row{trouble::slow_reducing, trouble::fail_sending},
                    row{trouble::slow_sending, trouble::fail_sending},
                    row{trouble::fail_reducing, trouble::fail_reducing},
                    row{trouble::none, trouble::cancel},
                    // Not in hivemind's matrix: a fault of the leader alone.
                    row{trouble::cancel, trouble::none}, row{trouble::fail_before, trouble::none},
                    row{trouble::slow_reducing, trouble::none}, row{trouble::none, trouble::none}),
  [](const auto& info) { return name_of(info.param.first) + "And" + name_of(info.param.second); });

} // namespace
} // namespace waggle::testing
