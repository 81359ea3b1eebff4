// Groups of nodes, clients, auxiliaries and members without samples:
// only the weights of those that have some count.

#include "runtime/core/random.hpp"
#include "tests/actors/group_averager/group_averager_fixture.hpp"

namespace waggle::testing {
namespace {

struct MixedMembers : GroupAverager {
  struct member {
    member_mode mode;
    double weight = 0; // 0: takes part without samples
  };

  /// Founds a group of new peers, the first of which leads, and averages once. Returns what each
  /// peer reports; its vector is given_by(its index).
  std::vector<round_report> average_once(const std::vector<member>& members) {
    auto first = peers.size();
    for (const auto& m : members)
      add(m.mode);
    EXPECT_TRUE(found(*peers[first]).ok());
    for (std::size_t i = 1; i < members.size(); ++i)
      EXPECT_TRUE(enter(*peers[first + i], {peers[first].get()}).get().ok()) << i;
    std::vector<pending<group_round>> rounds;
    for (std::size_t i = 0; i < members.size(); ++i) {
      if (members[i].mode == member_mode::auxiliary) {
        average_in_group without{.epoch = epoch_id{3}, .deadline = 20s};
        rounds.push_back(ask_later<group_round>(peers[first + i]->actor, without));
      } else {
        rounds.push_back(average(*peers[first + i], given_by(i), 3, i == 0, members[i].weight));
      }
    }
    pass(1s);
    std::vector<round_report> reports;
    auto clients = std::ranges::count(members, member_mode::client, &member::mode);
    for (const auto& round : rounds) {
      EXPECT_TRUE(round.get().ok());
      if (round.get()) {
        EXPECT_EQ(round.get()->group.clients, static_cast<std::size_t>(clients));
      }
      reports.push_back(round.get() ? round.get()->report : round_report{});
    }
    return reports;
  }
  float_vector given_by(std::size_t member) const {
    random_source random{40 + member};
    float_vector out(values);
    for (auto& x : out)
      x = exact ? static_cast<float>(random.below(8192)) / 4096 - 1
                : static_cast<float>(random.unit() - 0.5) * static_cast<float>(1 + 20 * member);
    return out;
  }
  float_vector mean_of(const std::vector<member>& members) const {
    std::vector<double> sum(values);
    double weight = 0;
    for (std::size_t i = 0; i < members.size(); ++i) {
      if (members[i].mode == member_mode::auxiliary)
        continue;
      weight += members[i].weight;
      auto given = given_by(i);
      for (std::size_t k = 0; k < values; ++k)
        sum[k] += members[i].weight * static_cast<double>(given[k]);
    }
    float_vector mean;
    for (double x : sum)
      mean.push_back(static_cast<float>(x / weight));
    return mean;
  }

  /// Vectors of multiples of 1/4096: with weights that add up to a power of two, their mean is
  /// exact.
  bool exact = true;
};

constexpr auto node = member_mode::node;
constexpr auto client = member_mode::client;
constexpr auto auxiliary = member_mode::auxiliary;

TEST_F(MixedMembers, OfEveryKindGetExactlyTheWeightedMean) {
  const std::vector<std::vector<member>> groups{
    {{node, 8}},
    {{node, 3}, {node, 5}},
    {{node, 3}, {client, 5}},
    {{node, 3}, {node, 0}, {client, 5}, {client, 0}},
    {{node, 0}, {client, 7}, {client, 1}},
    {{node, 8}, {auxiliary}},
    {{node, 2}, {auxiliary}, {client, 1}, {node, 5}},
    {{node, 0}, {auxiliary}, {client, 3}, {auxiliary}, {client, 5}},
    {{node, 1}, {client, 0}, {auxiliary}, {node, 0}, {client, 4}, {auxiliary}, {node, 3}},
  };
  for (std::size_t g = 0; g < groups.size(); ++g) {
    auto reports = average_once(groups[g]);
    auto expected = mean_of(groups[g]);
    for (std::size_t i = 0; i < reports.size(); ++i) {
      const auto& report = reports[i];
      EXPECT_EQ(report.outcome, round_outcome::complete) << "group " << g << ", member " << i;
      EXPECT_EQ(report.weight_sum, 8) << "group " << g << ", member " << i;
      ASSERT_TRUE(report.values) << "group " << g << ", member " << i;
      EXPECT_EQ(*report.values, expected) << "group " << g << ", member " << i;
    }
  }
}

TEST_F(MixedMembers, WithoutWeightChangeNoBitOfTheResult) {
  exact = false;
  const std::vector<member> contribute{{node, 2}, {node, 3}};
  auto expected = average_once(contribute).front().values;
  ASSERT_TRUE(expected);
  for (auto mode : {client, node, auxiliary}) {
    auto members = contribute;
    members.push_back({mode});
    for (const auto& report : average_once(members)) {
      EXPECT_EQ(report.weight_sum, 5);
      ASSERT_TRUE(report.values);
      EXPECT_EQ(*report.values, *expected);
    }
  }
}

} // namespace
} // namespace waggle::testing
