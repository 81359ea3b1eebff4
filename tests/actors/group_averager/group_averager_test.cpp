#include "actors/averaging/group_averager.hpp"

#include <array>

#include "runtime/core/random.hpp"
#include "tests/actors/group_averager/group_averager_fixture.hpp"

namespace waggle::testing {
namespace {

TEST_F(GroupAverager, PeersEnterAndAverageRoundAfterRound) {
  auto& a = add();
  auto& b = add();
  ASSERT_TRUE(found(a).ok());
  auto entered = enter(b, {&a});
  ASSERT_TRUE(entered.answered());
  ASSERT_TRUE(entered.get().ok());
  EXPECT_EQ(entered.get()->branch, branch);
  ASSERT_EQ(a.views.size(), 1U);
  EXPECT_EQ(a.views[0].members.size(), 2U);
  for (std::uint64_t epoch : {3U, 4U, 5U}) {
    auto one = average(a, 1, epoch);
    EXPECT_EQ(b.calls.back(), epoch_id{epoch});
    auto two = average(b, 3, epoch, false);
    pass(1s);
    ASSERT_TRUE(one.get().ok());
    ASSERT_TRUE(two.get().ok());
    EXPECT_EQ(one.get()->report.outcome, round_outcome::complete);
    EXPECT_EQ(first_of(*one.get()), 2.0F);
    EXPECT_EQ(first_of(*two.get()), 2.0F);
    EXPECT_TRUE(one.get()->keeps_majority);
    EXPECT_EQ(one.get()->branch, branch);
    EXPECT_EQ(two.get()->group.epoch, epoch_id{epoch + 1});
  }
}

// The leader may have lost its group, and with it the applicants that it had accepted.
TEST_F(GroupAverager, AnAcceptedApplicantWithoutAPlanAsksAgainUntilItIsRefused) {
  auto& a = add();
  auto& b = add();
  int answers = 0;
  answer_entry = [&answers] { return ++answers < 3 ? ec::none : ec::not_ready; };
  auto entered = enter(b, {&a});
  pass(1s);
  EXPECT_EQ(answers, 1);
  pass(2s);
  EXPECT_EQ(answers, 2);
  EXPECT_FALSE(entered.answered());
  pass(2s);
  EXPECT_EQ(answers, 3);
  ASSERT_TRUE(entered.answered());
  EXPECT_EQ(entered.get().error().code, ec::not_ready);
}

TEST_F(GroupAverager, AnAcceptedApplicantThatIsForgottenGetsInByAskingAgain) {
  auto& a = add();
  auto& b = add();
  ASSERT_TRUE(found(a).ok());
  int answers = 0;
  answer_entry = [&answers]() -> std::optional<ec> {
    if (++answers == 1)
      return ec::none; // accepts, and forgets the applicant
    return std::nullopt;
  };
  auto entered = enter(b, {&a});
  pass(2s);
  ASSERT_TRUE(entered.answered());
  EXPECT_TRUE(entered.get().ok());
}

// Otherwise it would be admitted repeatedly, and each time all others would begin again.
TEST_F(GroupAverager, AnEntryEndsWithAPlanThatIsRefused) {
  auto& a = add();
  auto& b = add();
  answer_entry = [] { return ec::none; };
  auto entered = enter(b, {&a});
  EXPECT_FALSE(entered.answered());
  round_plan without_us;
  without_us.members = {{a.ctx.record, member_mode::node}};
  tell(b.actor,
       inbound_event{a.ctx.record, wire::next_plan{{}, without_us, branch, {}, 0}, {}, nullptr});
  ASSERT_TRUE(entered.answered());
  EXPECT_EQ(entered.get().error().code, ec::protocol_violation);
  pass(10s);
  EXPECT_EQ(asked.size(), 1U);
}

// Otherwise a leader could have all believe it.
TEST_F(GroupAverager, APlanThatClaimsOneHostIsRefusedByWhoCannotSeeIt) {
  auto& a = add();
  auto& b = add();
  auto& c = add();
  std::optional<wire::next_plan> sent;
  lets_through = [&](std::size_t, const notify_peer& msg) {
    if (const auto* plan = std::get_if<wire::next_plan>(&msg.what))
      sent = *plan;
    return true;
  };
  ASSERT_TRUE(found(a).ok());
  ASSERT_TRUE(enter(b, {&a}).get().ok());
  ASSERT_TRUE(enter(c, {&a}).get().ok());
  ASSERT_TRUE(sent && sent->plan.members.size() == 3);
  auto lie = *sent;
  lie.replaces = sent->plan.id;
  lie.plan.one_host = true;
  lie.plan.id = id_of_change(lie.replaces, lie.plan);
  tell(b.actor, inbound_event{a.ctx.record, lie, {}, nullptr});
  auto all = {average(a, 1, 3), average(b, 2, 3, false), average(c, 3, 3, false)};
  pass(1s);
  for (const auto& one : all) {
    ASSERT_TRUE(one.answered());
    EXPECT_EQ(one.get()->report.outcome, round_outcome::complete) << "under the plan before";
  }
}

TEST_F(GroupAverager, SurvivorsGoOnAndKeepTheNameAsLongAsTheyAreMost) {
  auto& a = add();
  auto& b = add();
  auto& c = add();
  ASSERT_TRUE(found(a).ok());
  ASSERT_TRUE(enter(b, {&a}).get().ok());
  ASSERT_TRUE(enter(c, {&a}).get().ok());
  auto all = {average(a, 1, 3), average(b, 2, 3, false), average(c, 3, 3, false)};
  pass(1s);
  for (const auto& one : all)
    ASSERT_EQ(one.get()->report.outcome, round_outcome::complete);
  lose(a, c);
  lose(b, c);
  auto one = average(a, 1, 4);
  auto two = average(b, 2, 4, false);
  pass(5s);
  ASSERT_TRUE(one.get().ok());
  EXPECT_EQ(one.get()->report.outcome, round_outcome::shrunk);
  EXPECT_TRUE(one.get()->keeps_majority);
  EXPECT_EQ(one.get()->branch, branch);
  EXPECT_EQ(two.get()->group.members.size(), 2U);
}

TEST_F(GroupAverager, LeavingAnswersWhatIsOpenAndTellsTheOthers) {
  auto& a = add();
  auto& b = add();
  ASSERT_TRUE(found(a).ok());
  ASSERT_TRUE(enter(b, {&a}).get().ok());
  auto open = average(b, 1, 3);
  tell(b.actor, quit_group{});
  ASSERT_TRUE(open.answered());
  EXPECT_EQ(open.get()->report.why.code, ec::cancelled);
  EXPECT_FALSE(open.get()->group.member);
  // The other member does not wait for it.
  auto alone = average(a, 1, 3);
  pass(5s);
  ASSERT_TRUE(alone.answered());
  EXPECT_EQ(average(b, 1, 3).get().error().code, ec::not_ready);
}

// -- what is averaged -----------------------------------------------------------------------------

class GroupAveragerByCodec : public GroupAverager,
                             public ::testing::WithParamInterface<const char*> {};

TEST_P(GroupAveragerByCodec, EqualVectorsStayAsTheyAreByDeltas) {
  values = 5'000;
  random_source random{11};
  float_vector own(values);
  for (auto& x : own)
    x = static_cast<float>(random.unit() - 0.5) * 3;
  for (bool carried : {false, true}) {
    feedback = carried;
    std::vector<peer*> members;
    for (int i = 0; i < 3; ++i)
      members.push_back(&add(member_mode::node, *parse_codec_choice(GetParam())));
    ASSERT_TRUE(found(*members[0]).ok());
    for (std::size_t i : {1U, 2U})
      ASSERT_TRUE(enter(*members[i], {members[0]}).get().ok());
    for (std::uint64_t epoch = 3; epoch < 7; ++epoch) {
      std::vector<pending<group_round>> rounds;
      for (std::size_t i = 0; i < members.size(); ++i)
        rounds.push_back(average(*members[i], own, epoch, i == 0, i == 1 ? 2.5 : 1, true));
      pass(1s);
      for (const auto& round : rounds) {
        ASSERT_TRUE(round.get().ok());
        EXPECT_EQ(round.get()->report.outcome, round_outcome::complete);
        EXPECT_EQ(round.get()->report.contributors.size(), 3U);
        ASSERT_EQ(*round.get()->report.values, own) << "in epoch " << epoch;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Codecs, GroupAveragerByCodec,
                         ::testing::Values("none", "float16", "bfloat16", "scaled_float16",
                                           "uniform8", "quantile8", "blockwise8"),
                         [](const auto& info) { return std::string{info.param}; });

/// What a lossy codec has taken from a vector belongs to the next one, also in another group.
struct ErrorFeedbackInGroups : GroupAverager {
  ErrorFeedbackInGroups() { values = 5'000; } // uniform8 is exact for few values

  /// Whether the mean of zeros has what the codec took from the vector of the second peer in the
  /// round before. `regroup`: of both peers, between the two rounds.
  bool keeps(const std::function<void(peer&, peer&)>& regroup) {
    auto& a = add(member_mode::node, codec_id::uniform8);
    auto& b = add(member_mode::node, codec_id::uniform8);
    EXPECT_TRUE(found(a).ok());
    EXPECT_TRUE(enter(b, {&a}).get().ok());
    float_vector given(values);
    for (auto& x : given)
      x = static_cast<float>(random.unit() - 0.5);
    (void)round(a, {}, b, given, 3);
    regroup(a, b);
    auto mean = round(a, {}, b, {}, 4);
    return std::any_of(mean.begin(), mean.end(), [](float x) { return x != 0; });
  }

  const digest child = sha256("child");
  random_source random{5};

private:
  /// The mean of two vectors; empty: zeros.
  float_vector round(peer& a, float_vector of_a, peer& b, float_vector of_b, std::uint64_t epoch) {
    of_a.resize(values);
    of_b.resize(values);
    auto one = average(a, std::move(of_a), epoch, true);
    auto two = average(b, std::move(of_b), epoch, false);
    pass(1s);
    if (!one.answered() || !one.get() || one.get()->report.contributors.size() != 2) {
      ADD_FAILURE() << "no round of epoch " << epoch;
      return {};
    }
    return *one.get()->report.values;
  }
};

TEST_F(ErrorFeedbackInGroups, LastsAsLongAsTheHistory) {
  auto both_leave = [this](peer& a, peer& b) {
    tell(a.actor, quit_group{});
    tell(b.actor, quit_group{});
  };
  EXPECT_TRUE(keeps([](peer&, peer&) {}));
  EXPECT_TRUE(keeps([&](peer& a, peer& b) { // as after a failed round
    both_leave(a, b);
    ASSERT_TRUE(found(a, 4, child, branch).ok());
    ASSERT_TRUE(enter(b, {&a}, child, branch).get().ok());
  }))
    << "of a peer that enters";
  EXPECT_TRUE(keeps([&](peer& a, peer& b) {
    both_leave(a, b);
    ASSERT_TRUE(found(b, 4, child, branch).ok());
    ASSERT_TRUE(enter(a, {&b}, child, branch).get().ok());
  }))
    << "of the founder";
  EXPECT_TRUE(keeps([&](peer& a, peer& b) {
    both_leave(a, b);
    ASSERT_TRUE(found(a, 4).ok());
    ASSERT_TRUE(enter(b, {&a}).get().ok());
  }))
    << "of the same history";
  EXPECT_FALSE(keeps([&](peer& a, peer& b) {
    both_leave(a, b);
    ASSERT_TRUE(found(a, 4, child, branch).ok());
    ASSERT_TRUE(enter(b, {&a}, child, sha256("another")).get().ok());
  }))
    << "of another history";
  EXPECT_FALSE(keeps([&](peer& a, peer& b) {
    both_leave(a, b);
    ASSERT_TRUE(found(b, 4, child, sha256("another")).ok());
    ASSERT_TRUE(enter(a, {&b}, child, branch).get().ok());
  }))
    << "of a founder that has loaded the state of another history";
}

TEST_F(ErrorFeedbackInGroups, LastsOverARestart) {
  for (bool same_history : {true, false}) {
    auto restart = [&](peer& a, peer& b) {
      tell(a.actor, quit_group{});
      tell(b.actor, quit_group{});
      auto left = ask<group_residual>(b.actor, get_residual{});
      ASSERT_TRUE(left.ok() && left->values);
      EXPECT_EQ(left->history, branch);
      // The same actor, without what it had in memory: another length of the vector drops that.
      describe_vector again;
      again.elements = values + 1;
      tell(b.actor, again);
      EXPECT_FALSE(ask<group_residual>(b.actor, get_residual{})->values);
      again.elements = values;
      again.residual = left->values;
      again.history = left->history;
      tell(b.actor, again);
      ASSERT_TRUE(found(b, 4, child, same_history ? branch : sha256("another")).ok());
      ASSERT_TRUE(enter(a, {&b}, child, branch).get().ok());
    };
    EXPECT_EQ(keeps(restart), same_history);
  }
}

// The second of two vectors in turn; each has a residual of its own.
TEST_F(ErrorFeedbackInGroups, VectorsInTurnAreAveragedByTheirEpochs) {
  const std::uint64_t lengths[] = {values - 2'000, 2'000};
  for (auto length : lengths)
    tensors.push_back(std::make_shared<const std::vector<tensor_info>>(
      std::vector<tensor_info>{{"w", length, tensor_role::gradient}}));
  auto& a = add(member_mode::node, codec_id::uniform8);
  auto& b = add(member_mode::node, codec_id::uniform8);
  auto& helper = add(member_mode::auxiliary);
  ASSERT_TRUE(found(a).ok()); // at epoch 3
  ASSERT_TRUE(enter(b, {&a}).get().ok());
  auto entered = enter(helper, {&a}).get();
  ASSERT_TRUE(entered.ok()) << to_string(entered.error());
  EXPECT_EQ(entered->elements, values);
  EXPECT_EQ(average(a, float_vector(lengths[0]), 3, true).get().error().code, ec::wrong_shape);
  for (std::uint64_t epoch = 3; epoch < 7; ++epoch) {
    float_vector given(lengths[epoch % 2]);
    for (auto& x : given)
      x = static_cast<float>(random.unit() - 0.5);
    auto one = average(a, given, epoch, true);
    auto two = average(b, given, epoch, false);
    average_in_group without;
    without.epoch = epoch_id{epoch};
    without.deadline = 20s;
    auto three = ask_later<group_round>(helper.actor, without);
    pass(1s);
    for (const auto& ended : {one, two, three}) {
      ASSERT_TRUE(ended.answered() && ended.get().ok()) << epoch;
      EXPECT_EQ(ended.get()->report.outcome, round_outcome::complete);
      EXPECT_EQ(*ended.get()->report.values, *one.get()->report.values);
    }
    EXPECT_EQ(one.get()->report.values->size(), given.size());
  }
  auto residual = ask<group_residual>(b.actor, get_residual{});
  ASSERT_TRUE(residual.ok() && residual->values);
  EXPECT_EQ(residual->values->size(), values);
  for (auto from : {std::size_t{0}, std::size_t{lengths[0]}})
    EXPECT_NE((*residual->values)[from], 0.0F) << from;
}

// What the codec took is in no later round otherwise, and what it had taken before is in two.
TEST_F(ErrorFeedbackInGroups, CountsARoundThatOnlyTheOthersHaveCommitted) {
  auto& a = add(member_mode::node, codec_id::uniform8);
  auto& b = add(member_mode::node, codec_id::uniform8);
  ASSERT_TRUE(found(a).ok());
  ASSERT_TRUE(enter(b, {&a}).get().ok());
  lets_through = [](std::size_t from, const notify_peer& msg) {
    bool ends_round = std::holds_alternative<wire::round_prepared>(msg.what)
                      || std::holds_alternative<wire::round_commit>(msg.what);
    return from != 0 || !ends_round; // b never learns that a has the result, too
  };
  float_vector given(values);
  for (auto& x : given)
    x = static_cast<float>(random.unit() - 0.5);
  auto one = average(a, float_vector(values), 3, true);
  auto two = average(b, given, 3, false);
  pass(200ms);
  ASSERT_TRUE(one.answered() && one.get());
  EXPECT_EQ(one.get()->report.contributors.size(), 2U);
  ASSERT_FALSE(two.answered());
  tell(b.actor, quit_group{});
  EXPECT_EQ(two.get()->report.outcome, round_outcome::failed);
  EXPECT_TRUE(ask<group_residual>(b.actor, get_residual{})->values);
}

/// A vector of two tensors.
struct CodecsOfTensors : GroupAverager {
  CodecsOfTensors() { values = 5'000; } // uniform8 is exact for few values

  /// Whether the mean that two peers get is exact: of the first tensor, and of the second.
  using exactness = std::pair<bool, bool>;

  /// Of two new peers with this choice of codecs.
  exactness average_by(const char* choice) {
    std::array<peer*, 2> members;
    for (auto& member : members)
      member = &add(member_mode::node, *parse_codec_choice(choice));
    EXPECT_TRUE(found(*members[0]).ok());
    EXPECT_TRUE(enter(*members[1], {members[0]}).get().ok());
    std::array<float_vector, 2> inputs{numbers(1), numbers(2)};
    auto one = average(*members[0], inputs[0], 3, true);
    auto two = average(*members[1], inputs[1], 3, false);
    pass(1s);
    if (!one.get() || !two.get()) {
      ADD_FAILURE() << choice << ": " << to_string(one.get().error());
      return {};
    }
    auto mean = one.get()->report.values;
    EXPECT_EQ(*mean, *two.get()->report.values) << "byte-equal, whatever the codec";
    bool exact[2] = {true, true};
    for (std::size_t i = 0; i < values; ++i) {
      auto expected = (inputs[0][i] + inputs[1][i]) / 2;
      EXPECT_NEAR((*mean)[i], expected, 0.05) << choice;
      exact[i < first ? 0 : 1] &= (*mean)[i] == expected;
    }
    return {exact[0], exact[1]};
  }
  /// Multiples of 1/4096 between -1 and 1: their means are exact in float32.
  float_vector numbers(std::uint64_t seed) const {
    random_source random{seed};
    float_vector out(values);
    for (auto& x : out)
      x = static_cast<float>(random.below(8192)) / 4096 - 1;
    return out;
  }

  static constexpr std::uint64_t first = 2'000; // values of the first tensor
};

TEST_F(CodecsOfTensors, EachTensorTravelsByItsOwnCodec) {
  tensors.push_back(std::make_shared<const std::vector<tensor_info>>(
    std::vector<tensor_info>{{"norm.weight", first, tensor_role::parameter},
                             {"head.weight", values - first, tensor_role::gradient}}));
  for (const char* choice :
       {"role:gradient=uniform8", "map:norm.weight=none,head.weight=uniform8",
        "size:3000,none,uniform8", "list:none,(role:gradient=(size:3000,none,uniform8))"})
    EXPECT_EQ(average_by(choice), exactness(true, false)) << choice;
  EXPECT_EQ(average_by("size:3000,uniform8,none"), exactness(false, true));
}

TEST_F(CodecsOfTensors, NeedACodecEach) {
  auto& nameless =
    add(member_mode::node, *parse_codec_choice("map:norm.weight=none,head.weight=uniform8"));
  settle();
  EXPECT_FALSE(alive(nameless.actor)) << "a codec is missing";
}

/// Vectors that are not of the rank at which they are averaged.
struct LowRankRounds : GroupAverager {
  LowRankRounds() { rank = 2; }

  void group_of(std::size_t size, const codec_choice& codec = {}) {
    for (std::size_t i = 0; i < size; ++i)
      add(member_mode::node, codec);
    ASSERT_TRUE(found(*peers[0]).ok());
    for (std::size_t i = 1; i < size; ++i)
      ASSERT_TRUE(enter(*peers[i], {peers[0].get()}).get().ok());
  }
  float_vector gradient() {
    float_vector out(values);
    for (auto& x : out)
      x = static_cast<float>(2 * random.unit() - 1);
    return out;
  }
  static void add_to(std::vector<double>& sum, std::span<const float> x, double factor) {
    sum.resize(x.size());
    for (std::size_t i = 0; i < x.size(); ++i)
      sum[i] += factor * static_cast<double>(x[i]);
  }
  /// Both rounds of one epoch, in which all peers take part; their results, which are equal.
  float_vector epoch(std::uint64_t number, const std::vector<float_vector>& gradients) {
    std::vector<pending<group_round>> rounds;
    for (std::size_t i = 0; i < gradients.size(); ++i)
      rounds.push_back(average(*peers[i], gradients[i], number, i == 0));
    pass(2s);
    float_vector result;
    for (auto& round : rounds) {
      EXPECT_TRUE(round.get().ok());
      EXPECT_EQ(round.get()->report.outcome, round_outcome::complete);
      EXPECT_EQ(round.get()->report.contributors.size(), gradients.size());
      EXPECT_EQ(round.get()->group.epoch, epoch_id{number + 1});
      if (!result.empty()) {
        EXPECT_EQ(*round.get()->report.values, result);
      }
      result = *round.get()->report.values;
    }
    return result;
  }
  void expect_conserved(const std::vector<double>& given, const std::vector<double>& computed) {
    auto sum = given;
    for (const auto& p : peers)
      add_to(sum, p->coding->residual(), 1.0 / static_cast<double>(peers.size()));
    for (std::size_t i = 0; i < values; ++i)
      EXPECT_NEAR(sum[i], computed[i], 1e-5);
  }

  random_source random{21};
};

TEST_F(LowRankRounds, AMemberThatIsAloneAveragesExactly) {
  group_of(1);
  auto own = gradient();
  EXPECT_EQ(epoch(3, {own}), own);
  EXPECT_EQ(epoch(4, {own}), own);
}

TEST_F(LowRankRounds, AnEpochHasTwoShortRoundsAndTheSameResultEverywhere) {
  group_of(3);
  std::vector<double> given;
  std::vector<double> computed;
  for (std::uint64_t number = 3; number < 8; ++number) {
    std::vector<float_vector> gradients;
    for (int i = 0; i < 3; ++i)
      add_to(computed, gradients.emplace_back(gradient()), 1.0 / 3);
    add_to(given, epoch(number, gradients), 1);
  }
  expect_conserved(given, computed);
  EXPECT_EQ(peers[1]->rounds.size(), 10U);
  for (const auto& report : peers[1]->rounds)
    EXPECT_EQ(report.values->size(), 2U * 8);
  EXPECT_EQ(exported(*peers[0]->ctx.metrics, "waggle_averaging_sent_values_ratio"), 0.5);
}

TEST_F(LowRankRounds, TheErrorsOfALossyCodecAreNotLost) {
  group_of(2, codec_id::uniform8);
  std::vector<double> given;
  std::vector<double> computed;
  for (std::uint64_t number = 3; number < 13; ++number) {
    std::vector<float_vector> gradients;
    for (int i = 0; i < 2; ++i)
      add_to(computed, gradients.emplace_back(gradient()), 0.5);
    add_to(given, epoch(number, gradients), 1);
  }
  for (const auto& p : peers)
    add_to(given, p->coding->residual(), 0.5);
  // The mean is encoded once more, by the member that reduces it: that error is no peer's.
  double worst = 0;
  for (std::size_t i = 0; i < values; ++i)
    worst = std::max(worst, std::abs(given[i] - computed[i]));
  EXPECT_LT(worst, 0.1);
}

TEST_F(LowRankRounds, SurvivorsEndTheEpochOfAMemberThatDiesBetweenItsRounds) {
  group_of(3);
  (void)epoch(3, {gradient(), gradient(), gradient()});
  auto residual = peers[2]->coding->residual();
  // Once its first round is committed, nothing of the third peer arrives any more.
  lets_through = [&](std::size_t from, const notify_peer& msg) {
    bool dead = peers[2]->rounds.size() >= 3;
    return !dead || (from != 2 && msg.to.id != peers[2]->ctx.record.id);
  };
  std::vector<float_vector> gradients{gradient(), gradient(), gradient()};
  std::vector<double> computed;
  for (int i = 0; i < 2; ++i) {
    add_to(computed, gradients[static_cast<std::size_t>(i)], 0.5);
    add_to(computed, peers[static_cast<std::size_t>(i)]->coding->residual(), 0.5);
  }
  auto one = average(*peers[0], gradients[0], 4, true);
  auto two = average(*peers[1], gradients[1], 4, false);
  auto dies = average(*peers[2], gradients[2], 4, false);
  lose(*peers[0], *peers[2]);
  lose(*peers[1], *peers[2]);
  pass(18s);
  ASSERT_TRUE(one.answered() && two.answered());
  auto report = one.get()->report;
  EXPECT_EQ(report.outcome, round_outcome::shrunk);
  EXPECT_EQ(report.group_size, 3U);
  EXPECT_THAT(report.contributors,
              ::testing::UnorderedElementsAre(peers[0]->ctx.record.id, peers[1]->ctx.record.id));
  EXPECT_EQ(*report.values, *two.get()->report.values);
  EXPECT_EQ(one.get()->group.members.size(), 2U);
  EXPECT_EQ(one.get()->group.epoch, epoch_id{5});
  // The two of them have lost nothing.
  std::vector<double> given;
  add_to(given, *report.values, 1);
  for (int i = 0; i < 2; ++i)
    add_to(given, peers[static_cast<std::size_t>(i)]->coding->residual(), 0.5);
  for (std::size_t i = 0; i < values; ++i)
    EXPECT_NEAR(given[i], computed[i], 1e-5);
  EXPECT_EQ(peers[2]->coding->residual(), residual) << "its second round has failed";
}

// The gradient of the failed attempt must not be added twice.
TEST_F(LowRankRounds, ARetryCountsTheGradientOnce) {
  group_of(2);
  std::vector<double> given;
  std::vector<double> computed;
  std::vector<float_vector> gradients{gradient(), gradient()};
  add_to(given, epoch(3, gradients), 1);
  for (const auto& g : gradients)
    add_to(computed, g, 0.5);
  // The second round of epoch 4 fails on both.
  lets_through = [&](std::size_t, const notify_peer&) { return peers[0]->rounds.size() < 3; };
  gradients = {gradient(), gradient()};
  auto one = average(*peers[0], gradients[0], 4, true);
  auto two = average(*peers[1], gradients[1], 4, false);
  pass(2s);
  tell(peers[0]->actor, quit_group{});
  tell(peers[1]->actor, quit_group{});
  ASSERT_TRUE(one.answered() && two.answered());
  ASSERT_EQ(one.get()->report.outcome, round_outcome::failed);
  ASSERT_EQ(two.get()->report.outcome, round_outcome::failed);
  EXPECT_EQ(peers[0]->rounds.size(), 3U) << "the first round was committed";
  lets_through = [](std::size_t, const notify_peer&) { return true; };
  ASSERT_TRUE(found(*peers[0], 4).ok());
  ASSERT_TRUE(enter(*peers[1], {peers[0].get()}).get().ok());
  add_to(given, epoch(4, gradients), 1);
  for (const auto& g : gradients)
    add_to(computed, g, 0.5);
  expect_conserved(given, computed);
}

TEST_F(LowRankRounds, ANewcomerWithoutSamplesGetsTheMeanAndThenTheFactors) {
  group_of(2);
  for (std::uint64_t number = 3; number < 6; ++number)
    (void)epoch(number, {gradient(), gradient()});
  auto& late = add();
  ASSERT_TRUE(enter(late, {peers[0].get()}).get().ok());
  auto one = average(*peers[0], gradient(), 6, true);
  auto two = average(*peers[1], gradient(), 6, false);
  auto three = average(late, float_vector(values), 6, false, 0);
  pass(2s);
  ASSERT_TRUE(three.answered());
  EXPECT_EQ(*three.get()->report.values, *one.get()->report.values);
  EXPECT_EQ(*two.get()->report.values, *one.get()->report.values);
  EXPECT_TRUE(std::equal(late.coding->factors().begin(), late.coding->factors().end(),
                         peers[0]->coding->factors().begin()));
  for (auto x : late.coding->residual())
    EXPECT_EQ(x, 0);
  (void)epoch(7, {gradient(), gradient(), gradient()});
}

TEST_F(LowRankRounds, WhoeverAppliesBetweenTheRoundsEntersAfterTheEpoch) {
  group_of(2);
  auto& late = add();
  bool applied = false;
  lets_through = [&](std::size_t, const notify_peer&) {
    if (peers[0]->rounds.size() == 1 && !std::exchange(applied, true))
      caf::anon_send(late.actor, enter_group{{peers[0]->ctx.record}, branch, 30s});
    return true;
  };
  auto one = average(*peers[0], gradient(), 3, true);
  auto two = average(*peers[1], gradient(), 3, false);
  pass(2s);
  ASSERT_TRUE(one.answered() && applied);
  EXPECT_EQ(one.get()->report.group_size, 2U);
  EXPECT_EQ(one.get()->group.members.size(), 3U);
  EXPECT_EQ(two.get()->report.outcome, round_outcome::complete);
  (void)epoch(4, {gradient(), gradient(), gradient()});
}

// The leader, which has not heard the call, admits a newcomer: its plan replaces that of the round.
TEST_F(LowRankRounds, AFirstRoundWhosePlanWasReplacedBeginsAgainAndCountsTheGradientOnce) {
  group_of(2);
  std::vector<double> given;
  std::vector<double> computed;
  int calls = 0;
  lets_through = [&](std::size_t, const notify_peer& msg) {
    return !std::holds_alternative<wire::call_round>(msg.what) || ++calls > 1;
  };
  std::vector<float_vector> gradients{gradient(), gradient(), gradient()};
  auto two = average(*peers[1], gradients[1], 3, true);
  auto& late = add();
  ASSERT_TRUE(enter(late, {peers[0].get()}).get().ok());
  EXPECT_EQ(calls, 3) << "the one that was lost, and to both members of the new plan";
  EXPECT_FALSE(two.answered());
  auto one = average(*peers[0], gradients[0], 3, false);
  auto three = average(late, gradients[2], 3, false);
  pass(2s);
  for (auto* round : {&one, &two, &three}) {
    ASSERT_TRUE(round->answered());
    EXPECT_EQ(round->get()->report.outcome, round_outcome::complete);
    EXPECT_EQ(round->get()->report.contributors.size(), 3U);
    EXPECT_EQ(*round->get()->report.values, *one.get()->report.values);
    EXPECT_EQ(round->get()->group.epoch, epoch_id{4});
  }
  for (const auto& g : gradients)
    add_to(computed, g, 1.0 / 3);
  add_to(given, *one.get()->report.values, 1);
  expect_conserved(given, computed);
  for (const auto& g : gradients)
    add_to(computed, g, 1.0 / 3);
  add_to(given, epoch(4, gradients), 1);
  expect_conserved(given, computed);
}

// It knows nothing of the vector but what the plan says.
TEST_F(LowRankRounds, AnAuxiliaryWithoutAVectorReducesBothRounds) {
  group_of(2);
  auto& reducer = add(member_mode::auxiliary);
  ASSERT_TRUE(enter(reducer, {peers[0].get()}).get().ok());
  for (std::uint64_t number = 3; number < 5; ++number) {
    average_in_group without{.epoch = epoch_id{number}, .deadline = 20s};
    auto three = ask_later<group_round>(reducer.actor, without);
    auto one = average(*peers[0], gradient(), number, true);
    auto two = average(*peers[1], gradient(), number, false);
    pass(2s);
    ASSERT_TRUE(one.answered() && three.answered());
    EXPECT_EQ(one.get()->report.outcome, round_outcome::complete);
    EXPECT_EQ(*one.get()->report.values, *two.get()->report.values);
    EXPECT_EQ(three.get()->report.outcome, round_outcome::complete);
    EXPECT_EQ(three.get()->report.weight_sum, 2);
    EXPECT_EQ(three.get()->report.values, nullptr);
  }
}

TEST_F(LowRankRounds, RoundsWithoutSamplesChangeNothing) {
  group_of(2);
  (void)epoch(3, {gradient(), gradient()});
  auto residual = peers[0]->coding->residual();
  std::vector<float> factors{peers[0]->coding->factors().begin(),
                             peers[0]->coding->factors().end()};
  auto one = average(*peers[0], float_vector(values), 4, true, 0);
  auto two = average(*peers[1], float_vector(values), 4, false, 0);
  pass(2s);
  ASSERT_TRUE(one.answered());
  EXPECT_EQ(one.get()->report.weight_sum, 0);
  EXPECT_EQ(peers[0]->coding->residual(), residual);
  EXPECT_TRUE(std::equal(factors.begin(), factors.end(), peers[0]->coding->factors().begin()));
}

TEST_F(GroupAverager, SaysWhyARoundCannotBegin) {
  auto& a = add();
  EXPECT_EQ(average(a, 1, 3).get().error().code, ec::not_ready);
  ASSERT_TRUE(found(a).ok());
  EXPECT_EQ(average(a, 1, 4).get().error().code, ec::epoch_mismatch);
  average_in_group wrong{.values = std::make_shared<float_vector>(values + 1, 0.0F),
                         .epoch = epoch_id{3}};
  EXPECT_EQ(ask<group_round>(a.actor, wrong).error().code, ec::wrong_shape);
  wrong.values = std::make_shared<float_vector>(values, 0.0F);
  wrong.weight = -1;
  EXPECT_EQ(ask<group_round>(a.actor, wrong).error().code, ec::bad_weight);
}

} // namespace
} // namespace waggle::testing
