// One engine among three members; the test plays the other two. For orders of events that the
// simulated rounds (swarm/) rarely produce.

#include "runtime/allreduce/round_engine.hpp"

#include <algorithm>
#include <limits>
#include <map>
#include <utility>

#include <gtest/gtest.h>

#include "runtime/averaging/group_majority.hpp"
#include "runtime/crypto/digest.hpp"
#include "tests/runtime/allreduce/recorder.hpp"
#include "tests/runtime/averaging/plans.hpp"

namespace waggle {
namespace {

using testing::recorder;

/// We are member 0 and lead. Member m contributes m + 1 everywhere; the heir has weight 3, the
/// others 1: the mean of the survivors is 2.5.
class RoundEngine : public ::testing::Test {
protected:
  static constexpr std::size_t us = 0;
  static constexpr std::size_t lost = 1;
  static constexpr std::size_t heir = 2;
  static constexpr std::uint64_t everybody = 0b111;
  static constexpr std::uint64_t survivors = 0b101;
  static constexpr float poison = -1e3F;

  static double weight_of(std::size_t member) { return member == heir ? 3 : 1; }
  static float value_of(std::size_t member) { return static_cast<float>(member + 1); }

  RoundEngine() {
    plan_.shares = {10, 20, 10};
    plan_.elements = 40;
    plan_.codecs = {{40, codec_id::none}};
    EXPECT_TRUE(validate_plan(plan_).ok());
    table_.emplace(plan_);
    begin_as(us);
  }

  void begin_as(std::size_t self) {
    make(self);
    engine_->begin();
    engine_->ship();
  }
  void make(std::size_t self) {
    port_->sent.clear();
    round_request request{plan_, self, std::make_shared<const float_vector>(40, value_of(self)),
                          weight_of(self), open_group_};
    engine_ = std::make_shared<round_engine>(
      std::move(request), config_, round_memory{vector_pool::make(2), buffer_pool::make(0)}, port_,
      [this] { return now_; });
  }

  peer_record peer(std::size_t member) const { return plan_.members[member].peer; }

  wire::part head(wire::part_kind kind, std::uint32_t index, std::uint32_t view) const {
    return wire::part{.round = plan_.id,
                      .view = view,
                      .kind = kind,
                      .index = index,
                      .offset = (*table_)[index].offset,
                      .count = (*table_)[index].count};
  }

  wire::part result_head(std::uint32_t index, std::uint32_t view, std::uint64_t over) const {
    auto made = head(wire::part_kind::result, index, view);
    made.contributors = over;
    member_set{over}.for_each([&](std::size_t m) {
      made.weight += weight_of(m);
      made.weights.push_back(weight_of(m));
    });
    return made;
  }

  /// The digest of the result over `over` if all of its values are `value`.
  digest digest_of(float value, std::uint64_t over) const {
    part_groups groups{*table_};
    std::vector<float> values(plan_.part_elements, value);
    auto part = [&](std::uint32_t) { return std::span<const float>{values}; };
    result_terms terms{plan_.id, over, result_head(0, 0, over).weight};
    std::vector<digest> all;
    for (std::size_t g = 0; g < groups.size(); ++g)
      all.push_back(group_digest(terms, groups[g], part));
    return result_digest(terms, all);
  }

  payload filled(float value) const {
    return payload_of(std::make_shared<const float_vector>(plan_.part_elements, value));
  }

  void contribute(std::size_t member, std::uint32_t index, std::uint32_t view) {
    auto what = head(wire::part_kind::contribution, index, view);
    what.weight = weight_of(member);
    engine_->on_event({peer(member), what, filled(value_of(member)), nullptr});
  }

  /// Delivers a result as a link does: written to its place if there is one. False: there was none.
  bool deliver_result(std::size_t from, const wire::part& what, float value) {
    auto bytes = plan_.part_elements * sizeof(float);
    auto body = filled(value);
    auto place = engine_->destination(peer(from).id, what, bytes);
    if (place) {
      std::copy_n(body.data.get(), bytes, place.get());
      body = payload{place, bytes};
    }
    engine_->on_event({peer(from), what, body, nullptr});
    return place != nullptr;
  }

  /// A part of `lost` that `heir` reduces after the loss.
  std::uint32_t inherited(const round_view& view) const {
    for (std::uint32_t i = 0; i < table_->size(); ++i)
      if ((*table_)[i].default_owner == lost && table_->owner(i, view) == heir)
        return i;
    ADD_FAILURE() << "the heir reduces no part of the lost member";
    return 0;
  }

  /// How many such messages we sent since the last call.
  template <class Message, class Predicate>
  std::size_t count_sent(Predicate like) {
    std::size_t found = 0;
    for (const auto& message : std::exchange(port_->sent, {}))
      if (const auto* what = std::get_if<Message>(&message.what))
        found += like(*what) ? 1 : 0;
    return found;
  }
  /// Member 0 begins a new term whose view is like the first.
  void lead_anew(std::uint32_t term, bool adopted = false) {
    round_view view{3 * term * views_per_term, everybody, everybody, adopted,
                    adopted ? digest_of(2.4F, everybody) : digest{}};
    engine_->on_event({peer(0), wire::round_propose{plan_.id, view}, {}, nullptr});
  }

  /// The view that we proposed after a loss.
  round_view proposed() const {
    for (const auto& message : port_->sent)
      if (const auto* propose = std::get_if<wire::round_propose>(&message.what))
        return propose->view;
    ADD_FAILURE() << "no view was proposed";
    return {};
  }

  /// Delivers the heir's messages of `view`, except for part `except`, and its `prepared` message.
  void finish_with_heir(const round_view& view, std::uint32_t except) {
    for (std::uint32_t i = 0; i < table_->size(); ++i) {
      if (table_->owner(i, view) == us)
        contribute(heir, i, view.number);
      else if (i != except)
        deliver_result(heir, result_head(i, view.number, survivors), 2.5F);
    }
    auto prepared = view;
    prepared.result = digest_of(2.5F, survivors);
    engine_->on_event({peer(heir), testing::prepared_by(heir, plan_, prepared), {}, nullptr});
  }

  void expect_the_survivors_mean() const {
    ASSERT_TRUE(port_->end) << "the round goes on";
    ASSERT_EQ(port_->end->report.outcome, round_outcome::shrunk);
    const auto& values = *port_->end->report.values;
    EXPECT_EQ(std::vector<float>(values.begin(), values.end()), std::vector<float>(40, 2.5F));
    EXPECT_EQ(port_->end->report.weight_sum, 4);
    EXPECT_TRUE(port_->refused.empty()) << "no member broke a rule";
  }

  round_plan plan_ = plan_for(3, 10, 10);
  std::optional<part_table> table_;
  steady_time now_ = steady_time{} + 1h;
  bool open_group_ = false;
  round_config config_;
  std::shared_ptr<recorder> port_ = std::make_shared<recorder>(peer(us).id);
  std::shared_ptr<round_engine> engine_;
};

class RoundEngineLateBody : public RoundEngine {
protected:
  /// A link of the lost member was lent the place of its part, and has written there.
  void SetUp() override {
    round_view alone{views_per_term, survivors, survivors, false, {}};
    index_ = inherited(alone);
    late_ = result_head(index_, 0, everybody);
    auto bytes = plan_.part_elements * sizeof(float);
    place_ = engine_->destination(peer(lost).id, late_, bytes);
    ASSERT_TRUE(place_);
    auto* values = reinterpret_cast<float*>(place_.get());
    std::fill_n(values, plan_.part_elements, poison);
    engine_->on_lost(peer(lost).id, ec::peer_lost);
    view_ = proposed();
    ASSERT_EQ(view_.contributors, survivors);
    ASSERT_EQ(inherited(view_), index_);
  }

  void late_body_arrives() {
    engine_->on_event(
      {peer(lost), late_, payload{place_, plan_.part_elements * sizeof(float)}, nullptr});
  }

  std::uint32_t index_ = 0;
  wire::part late_;
  std::shared_ptr<std::byte> place_;
  round_view view_;
};

TEST_F(RoundEngineLateBody, DoesNotReplaceThePartThatCameApart) {
  EXPECT_FALSE(deliver_result(heir, result_head(index_, view_.number, survivors), 2.5F))
    << "two links may not write to one place";
  late_body_arrives();
  finish_with_heir(view_, index_);
  expect_the_survivors_mean();
}

TEST_F(RoundEngineLateBody, LeavesThePlaceToThePartThatComesAfterIt) {
  late_body_arrives();
  EXPECT_TRUE(deliver_result(heir, result_head(index_, view_.number, survivors), 2.5F));
  finish_with_heir(view_, index_);
  expect_the_survivors_mean();
}

TEST_F(RoundEngineLateBody, ThatNeverArrivesMayStillBeWrittenWhenTheRoundIsOver) {
  deliver_result(heir, result_head(index_, view_.number, survivors), 2.5F);
  finish_with_heir(view_, index_);
  std::fill_n(reinterpret_cast<float*>(place_.get()), plan_.part_elements, 2 * poison);
  expect_the_survivors_mean();
}

TEST_F(RoundEngine, NotifiesEveryNewLeaderOfLostLinks) {
  begin_as(1);
  auto about_the_heir = [](const wire::round_suspect& word) { return word.member == heir; };
  engine_->on_lost(peer(heir).id, ec::peer_lost);
  EXPECT_EQ(count_sent<wire::round_suspect>(about_the_heir), 1U);
  lead_anew(1);
  EXPECT_EQ(count_sent<wire::round_suspect>(about_the_heir), 1U) << "it may not know of the loss";
  lead_anew(2, true);
  EXPECT_EQ(count_sent<wire::round_suspect>(about_the_heir), 0U)
    << "it needs nothing from the heir";
}

TEST_F(RoundEngine, GoesOnAtOnceWithoutAMemberThatLacksAMessage) {
  engine_->on_unreached(peer(lost).id);
  finish_with_heir(proposed(), table_->size());
  expect_the_survivors_mean();
  EXPECT_EQ(port_->end->report.faults[0].reason, ec::unreachable);
}

TEST_F(RoundEngine, GivesTheCoordinatorTimeToReachIt) {
  begin_as(1);
  engine_->on_unreached(peer(0).id);
  EXPECT_EQ(count_sent<wire::round_takeover>([](const auto&) { return true; }), 0U);
}

TEST_F(RoundEngine, ReportsWhenTheFirstAndTheLastPartOfEachMemberArrived) {
  round_view first{0, everybody, everybody, false, {}};
  std::uint32_t ours = 0;
  while (table_->owner(ours, first) != us)
    ++ours;
  std::uint32_t of_heir = 0;
  while (table_->owner(of_heir, first) != heir)
    ++of_heir;
  now_ += 5ms;
  contribute(lost, ours, 0);
  now_ += 20ms;
  contribute(heir, ours, 0);
  now_ += 3ms;
  deliver_result(heir, result_head(of_heir, 0, everybody), 2.4F);
  engine_->break_off({ec::cancelled, {}});
  ASSERT_TRUE(port_->end && port_->end->report.marks);
  const auto& marks = *port_->end->report.marks;
  ASSERT_EQ(marks.members.size(), 3U);
  EXPECT_EQ(marks.self, us);
  EXPECT_EQ(marks.members[us].contributions.last, 0ms);
  EXPECT_EQ(marks.members[us].results.last, 25ms) << "our sum";
  EXPECT_EQ(marks.members[lost].contributions.first, 5ms);
  EXPECT_EQ(marks.members[lost].contributions.last, 5ms);
  EXPECT_EQ(marks.members[lost].results.first, round_marks::never);
  EXPECT_EQ(marks.members[heir].contributions.first, 25ms);
  EXPECT_EQ(marks.members[heir].results.first, 28ms);
  EXPECT_EQ(marks.members[heir].weight, 3);
  EXPECT_EQ(marks.members[heir].bytes_in, 2 * plan_.part_elements * sizeof(float));
  EXPECT_GT(marks.members[heir].bytes_out, 0U);
  EXPECT_TRUE(marks.members[heir].reduces);
}

TEST_F(RoundEngine, AReducerIsAwaitedForItsTimeoutOrTwiceThatOfSenders) {
  round_view first{0, everybody, everybody, false, {}};
  auto gives_up = [this] {
    engine_->check();
    return count_sent<wire::round_propose>([](const auto&) { return true; }) > 0;
  };
  config_.stall_timeout = 1s;
  for (auto [own, longest] : {std::pair{0ms, 2'000ms}, std::pair{5'000ms, 5'000ms}}) {
    config_.result_timeout = own;
    begin_as(us);
    for (std::uint32_t i = 0; i < table_->size(); ++i)
      for (auto member : {lost, heir})
        if (table_->owner(i, first) == us)
          contribute(member, i, 0);
        else if (table_->owner(i, first) == heir && member == heir)
          deliver_result(heir, result_head(i, 0, everybody), 2.4F);
    now_ += longest - 1ms;
    EXPECT_FALSE(gives_up()) << own.count();
    now_ += 1ms;
    EXPECT_TRUE(gives_up()) << own.count();
  }
}

class RoundEngineSlowLinks : public RoundEngine {
protected:
  /// We have every part of the result; no other member has confirmed that it does.
  RoundEngineSlowLinks() {
    round_view first{0, everybody, everybody, false, {}};
    for (std::uint32_t i = 0; i < table_->size(); ++i)
      for (auto member : {lost, heir})
        if (table_->owner(i, first) == us)
          contribute(member, i, 0);
        else if (table_->owner(i, first) == member)
          deliver_result(member, result_head(i, 0, everybody), 2.4F);
    port_->sent.clear();
  }

  void heir_confirms() {
    round_view first{0, everybody, everybody, false, digest_of(2.4F, everybody)};
    engine_->on_event({peer(heir), testing::prepared_by(heir, plan_, first), {}, nullptr});
  }
  /// Lets `time` pass, while every link carries `bytes` in each half second.
  void wait(milliseconds time, std::uint64_t bytes) {
    for (milliseconds passed{0}; passed < time; passed += 500ms) {
      now_ += 500ms;
      port_->written += bytes;
      engine_->check();
    }
  }
  bool suspects() {
    return port_->end || count_sent<wire::round_propose>([](const auto&) { return true; }) > 0;
  }
};

TEST_F(RoundEngineSlowLinks, MembersThatStillReceiveResultsAreNotSuspected) {
  wait(40s, 1000);
  EXPECT_FALSE(suspects());
  wait(14s, 0);
  EXPECT_FALSE(suspects());
  wait(2s, 0);
  EXPECT_TRUE(suspects()) << "they received nothing for three times the stall timeout";
}

TEST_F(RoundEngineSlowLinks, ALeaderGivesUpBeforeItsFollowersSuspectIt) {
  heir_confirms(); // and suspects us after five times the stall timeout
  wait(19s, 1000);
  EXPECT_FALSE(suspects());
  wait(2s, 1000);
  EXPECT_TRUE(suspects());
}

/// Member 0 holds the state and is slow, because it sends the state to the two others, who are new.
class RoundEngineOfNewcomers : public RoundEngine {
protected:
  RoundEngineOfNewcomers() {
    plan_.gathered = {"", std::string{newcomer_mark}, std::string{newcomer_mark}};
    open_group_ = true;
  }

  /// Delivers what `from` contributes to our parts.
  void contribute_all(std::size_t from, std::size_t self) {
    for (std::uint32_t i = 0; i < table_->size(); ++i)
      if ((*table_)[i].default_owner == self)
        contribute(from, i, 0);
  }
  /// The seconds until we do something about a member that is late; 120: we never do.
  int patience() {
    port_->sent.clear();
    for (int passed = 1; passed < 120; ++passed) {
      now_ += 1s;
      engine_->check();
      auto acts = std::any_of(port_->sent.begin(), port_->sent.end(), [](const auto& message) {
        return std::holds_alternative<wire::round_takeover>(message.what)
               || std::holds_alternative<wire::round_suspect>(message.what)
               || std::holds_alternative<wire::round_propose>(message.what)
               || std::holds_alternative<wire::round_abort>(message.what);
      });
      if (acts || port_->end)
        return passed;
    }
    return 120;
  }
};

TEST_F(RoundEngineOfNewcomers, TheyAwaitTheMemberThatHoldsTheStateForLonger) {
  begin_as(1);
  contribute_all(heir, 1);
  EXPECT_EQ(patience(), 5 * patience_with_holders);
}

TEST_F(RoundEngineOfNewcomers, TheHolderIsAwaitedThoughItLacksAMessage) {
  plan_.gathered = {std::string{newcomer_mark}, "", std::string{newcomer_mark}};
  begin_as(2);
  engine_->on_unreached(peer(1).id);
  EXPECT_EQ(count_sent<wire::round_suspect>([](const auto&) { return true; }), 0U);
}

TEST_F(RoundEngineOfNewcomers, AnotherNewcomerIsAwaitedOnlyOnceItHasBegunToContribute) {
  begin_as(1);
  contribute_all(0, 1);
  EXPECT_EQ(patience(), 2) << "the other newcomer is silent";
  begin_as(1);
  contribute_all(0, 1);
  EXPECT_FALSE(engine_->destination(peer(heir).id, head(wire::part_kind::contribution, 3, 0), 16));
  EXPECT_EQ(patience(), 5) << "a part of the other newcomer is on its way";
  open_group_ = false; // the marks are what peers published
  begin_as(1);
  contribute_all(heir, 1);
  EXPECT_EQ(patience(), 5);
}

TEST_F(RoundEngineOfNewcomers, TheHolderItselfAwaitsTheirResultsForLonger) {
  begin_as(0);
  contribute_all(1, 0);
  contribute_all(heir, 0);
  EXPECT_EQ(patience(), 2 * 5 * patience_with_holders);
}

TEST_F(RoundEngineOfNewcomers, ResultsMayStillBeLateOnceTheHolderHasContributed) {
  begin_as(1);
  contribute_all(heir, 1);
  now_ += 14s;
  engine_->check();
  contribute_all(0, 1);
  EXPECT_GT(patience(), 20) << "the other newcomer awaits the holder, too";
}

TEST_F(RoundEngine, WhoIsToldOfASilenceThatItWouldSoonHaveNoticedHasNoticedIt) {
  for (auto [silence, noticed] : {std::pair{4s, true}, std::pair{2s, false}}) {
    begin_as(us);
    now_ += silence;
    engine_->on_event({peer(heir), wire::round_suspect{plan_.id, 0, lost, ec::stalled}, {}, {}});
    finish_with_heir(proposed(), table_->size());
    ASSERT_TRUE(port_->end);
    const auto& faults = port_->end->report.faults;
    ASSERT_EQ(faults.size(), 1U);
    EXPECT_EQ(faults[0].peer, peer(lost).id);
    EXPECT_EQ(faults[0].seen, noticed) << silence.count() << " s";
    port_->end.reset();
  }
}

TEST_F(RoundEngine, TellsWhoMissedTheDecisionBeforeTheRoundIsPutAway) {
  engine_->on_lost(peer(lost).id, ec::peer_lost);
  auto view = proposed();
  finish_with_heir(view, ~0U);
  ASSERT_TRUE(port_->end);
  port_->sent.clear();
  auto is_decision = [&](const wire::round_commit& decided) {
    return decided.view.number == view.number && decided.view.contributors == survivors;
  };
  round_view next{heir * views_per_term, survivors, survivors, true, digest_of(2.5F, survivors)};
  for (const wire::event& word :
       {wire::event{wire::round_propose{plan_.id, next}},
        wire::event{wire::round_suspect{plan_.id, view.number, lost, ec::stalled}}}) {
    engine_->on_event({peer(heir), word, {}, nullptr});
    EXPECT_EQ(count_sent<wire::round_commit>(is_decision), 1U);
  }
  engine_->on_event({peer(heir), testing::prepared_by(heir, plan_, next), {}, nullptr});
  EXPECT_TRUE(port_->sent.empty()) << "who reports that it holds the result asks for nothing";
}

TEST_F(RoundEngine, DoesNotSuspectALeaderThatReachesIt) {
  begin_as(1);
  engine_->on_lost(peer(0).id, ec::peer_lost);
  EXPECT_EQ(count_sent<wire::round_takeover>([](const auto&) { return true; }), 1U);
  lead_anew(1); // over a new link, with a term above ours
  EXPECT_EQ(count_sent<wire::round_takeover>([](const auto&) { return true; }), 0U);
}

TEST_F(RoundEngine, ReportsWhichFaultsItNoticedItself) {
  engine_->on_event(
    {peer(heir), wire::round_suspect{plan_.id, 0, heir, ec::unequal_results}, {}, {}});
  engine_->on_lost(peer(lost).id, ec::peer_lost);
  ASSERT_TRUE(port_->end) << "nobody is left";
  const auto& faults = port_->end->report.faults;
  ASSERT_EQ(faults.size(), 2U);
  EXPECT_EQ(faults[0].peer, peer(lost).id);
  EXPECT_TRUE(faults[0].seen);
  EXPECT_FALSE(faults[1].seen) << "it accused itself";
}

TEST_F(RoundEngine, EndsForAMemberThatIsNotInIt) {
  engine_->on_event({peer(lost), wire::round_suspect{plan_.id, 0, lost, ec::not_looking}, {}, {}});
  ASSERT_TRUE(port_->end);
  EXPECT_EQ(port_->end->report.why.code, ec::not_looking);
}

TEST_F(RoundEngine, AnOpenGroupGoesOnWithoutAMemberThatLeaves) {
  open_group_ = true;
  for (auto reason : {ec::not_looking, ec::cancelled}) {
    begin_as(us);
    engine_->on_event({peer(lost), wire::round_suspect{plan_.id, 0, lost, reason}, {}, {}});
    ASSERT_FALSE(port_->end) << to_string(port_->end->report.why);
    finish_with_heir(proposed(), table_->size());
    ASSERT_TRUE(port_->end);
    const auto& report = port_->end->report;
    EXPECT_EQ(report.outcome, round_outcome::shrunk);
    EXPECT_EQ(report.contributors, (std::vector<peer_id>{peer(us).id, peer(heir).id}));
    ASSERT_EQ(report.faults.size(), 1U);
    EXPECT_TRUE(report.faults[0].left);
    port_->end.reset();
  }
}

TEST_F(RoundEngine, GoesOnIfAMemberThatTookPartDoesNotTakePartInTheNextRound) {
  auto first = first_view(plan_);
  for (std::uint32_t i = 0; i < table_->size(); ++i)
    if (table_->owner(i, first) == us)
      contribute(lost, i, 0);
  engine_->on_event({peer(lost), wire::round_suspect{plan_.id, 0, lost, ec::not_looking}, {}, {}});
  EXPECT_FALSE(port_->end);
}

TEST_F(RoundEngine, GoesOnIfAMemberThatOnlyReducesDoesNotTakePartInTheNextRound) {
  auto first = first_view(plan_);
  auto all = first.contributors;
  for (std::uint32_t i = 0; i < table_->size(); ++i)
    if (table_->owner(i, first) == lost) {
      deliver_result(lost, result_head(i, 0, all), 1);
      break;
    }
  engine_->on_event({peer(lost), wire::round_suspect{plan_.id, 0, lost, ec::not_looking}, {}, {}});
  EXPECT_FALSE(port_->end);
  engine_->on_event({peer(heir), wire::round_suspect{plan_.id, 0, heir, ec::not_looking}, {}, {}});
  EXPECT_TRUE(port_->end) << "nothing of that one is here";
}

TEST_F(RoundEngine, GoesOnWithoutAnAuxiliaryThatIsNotInIt) {
  plan_.members[lost].mode = member_mode::auxiliary;
  make(us);
  engine_->begin();
  engine_->on_event({peer(lost), wire::round_suspect{plan_.id, 0, lost, ec::not_looking}, {}, {}});
  EXPECT_FALSE(port_->end);
  EXPECT_FALSE(member_set{proposed().participants}.contains(lost)) << "it is left out";
}

TEST_F(RoundEngine, SendsResultsAgainToMembersThatMayHaveDroppedThem) {
  begin_as(1);
  auto is_result = [](const wire::part& part) { return part.kind == wire::part_kind::result; };
  for (std::uint32_t i : {1U, 2U})
    for (std::size_t member : {us, heir})
      contribute(member, i, 0);
  EXPECT_EQ(count_sent<wire::part>(is_result), 4U) << "two parts, two others";
  lead_anew(1);
  EXPECT_EQ(count_sent<wire::part>(is_result), 4U)
    << "others may come here from a view of fewer contributors";
  lead_anew(2, true);
  EXPECT_EQ(count_sent<wire::part>(is_result), 0U) << "all participants hold an adopted result";
}

// What both others sent for the next view is refused as soon as that begins, and nobody is left.
TEST_F(RoundEngine, ReportsNothingMoreInAViewThatEndsItAtOnce) {
  begin_as(1);
  for (std::uint32_t i = 0; i < table_->size(); ++i)
    if (auto owner = (*table_)[i].default_owner; owner != 1)
      deliver_result(owner, result_head(i, 0, everybody), 2.4F);
    else
      for (std::size_t member : {us, heir})
        contribute(member, i, 0);
  auto any = [](const auto&) { return true; };
  ASSERT_EQ(count_sent<wire::round_prepared>(any), 2U) << "our result is complete";
  for (std::size_t member : {us, heir})
    deliver_result(member, result_head(0, 3 * views_per_term, survivors), 2.5F);
  lead_anew(1);
  ASSERT_TRUE(port_->end);
  EXPECT_EQ(port_->end->report.outcome, round_outcome::failed);
  EXPECT_EQ(port_->end->report.marks->members.size(), 3U);
}

TEST_F(RoundEngine, ReceivesWhileItEncodesItsContributions) {
  make(us);
  engine_->begin();
  EXPECT_EQ(count_sent<wire::part>([](const auto&) { return true; }), 0U);
  contribute(lost, 0, 0);
  contribute(heir, 0, 0);
  EXPECT_EQ(count_sent<wire::part>([](const auto&) { return true; }), 0U) << "ours is missing";
  engine_->ship();
  auto parts = [](wire::part_kind kind) {
    return [kind](const wire::part& part) { return part.kind == kind; };
  };
  auto sent = port_->sent;
  EXPECT_EQ(count_sent<wire::part>(parts(wire::part_kind::contribution)), 3U);
  port_->sent = sent;
  EXPECT_EQ(count_sent<wire::part>(parts(wire::part_kind::result)), 2U);
}

TEST_F(RoundEngine, WhatIsNotSentWhenAMemberIsLostGoesToItsHeirs) {
  make(us);
  engine_->begin();
  engine_->on_lost(peer(lost).id, ec::peer_lost);
  std::map<peer_id, std::size_t> parts_to;
  for (const auto& message : port_->sent)
    if (std::holds_alternative<wire::part>(message.what))
      ++parts_to[message.to];
  EXPECT_EQ(parts_to[peer(lost).id], 0U) << "it is lost";
  EXPECT_EQ(parts_to[peer(heir).id], 2U) << "its own, and one of two of the lost member";
  auto before = port_->sent.size();
  engine_->ship();
  EXPECT_EQ(port_->sent.size(), before) << "it was all sent";
}

TEST_F(RoundEngine, AResultThatIsNotFiniteIsItsSendersFault) {
  contribute(lost, 0, 0);
  contribute(heir, 0, 0);
  auto what = result_head(1, 0, everybody);
  deliver_result(lost, what, std::numeric_limits<float>::infinity());
  EXPECT_EQ(port_->refused, std::vector{ec::non_finite});
  auto view = proposed();
  EXPECT_FALSE(view.participant_set().contains(lost));
  EXPECT_TRUE(view.participant_set().contains(heir));
}

/// The members get the contributions to a part: each has three of 11 bytes, or two.
class RoundEngineOfContributions : public RoundEngine {
protected:
  RoundEngineOfContributions() {
    plan_.codecs = {{40, codec_id::sparse2}};
    plan_.one_host = true; // nobody pledges
    table_.emplace(plan_);
    begin_as(us);
  }

  static std::vector<std::byte> sparse(float value) {
    std::vector<std::byte> bytes(encoded_size(codec_id::sparse2, 10));
    encode(codec_id::sparse2, std::vector<float>(10, value), bytes);
    return bytes;
  }
  static std::vector<std::byte> joined(std::initializer_list<float> values) {
    std::vector<std::byte> all;
    for (auto value : values) {
      auto one = sparse(value);
      all.insert(all.end(), one.begin(), one.end());
    }
    return all;
  }
  void deliver(const wire::part& what, const std::vector<std::byte>& body) {
    engine_->on_event({peer(lost), what, copy_to_payload(body), nullptr});
  }
  void expect_refused(const wire::part& what, const std::vector<std::byte>& body, ec reason) {
    begin_as(us);
    port_->refused.clear();
    deliver(what, body);
    EXPECT_EQ(port_->refused, std::vector{reason});
  }
};

TEST_F(RoundEngineOfContributions, SendsBackWhatTheMembersSentInTheirOrder) {
  for (auto member : {heir, lost}) {
    auto what = head(wire::part_kind::contribution, 0, 0);
    what.weight = weight_of(member);
    engine_->on_event({peer(member), what, copy_to_payload(sparse(value_of(member))), nullptr});
  }
  std::size_t results = 0;
  for (const auto& message : port_->sent) {
    const auto* part = std::get_if<wire::part>(&message.what);
    if (part == nullptr || part->kind != wire::part_kind::result)
      continue;
    ++results;
    EXPECT_EQ(part->weights, (std::vector<double>{1, 1, 3}));
    EXPECT_TRUE(std::ranges::equal(message.body.view(), joined({1, 2, 3})));
  }
  EXPECT_EQ(results, 2U);
}

TEST_F(RoundEngineOfContributions, TakesAResultWithItsOwnContributionInIt) {
  deliver(result_head(1, 0, everybody), joined({1, 2, 3}));
  EXPECT_TRUE(port_->refused.empty());
}

TEST_F(RoundEngineOfContributions, RefusesAResultThatIsNotOfTheContributions) {
  auto right = result_head(1, 0, everybody);
  expect_refused(right, joined({4, 2, 3}), ec::wrong_sum); // ours is another
  expect_refused(right, joined({2, 1, 3}), ec::wrong_sum);
  expect_refused(right, joined({1, 2}), ec::wrong_shape);
  expect_refused(right, joined({1, 2, 3, 3}), ec::wrong_shape);
  expect_refused(right, {}, ec::wrong_shape);
  auto malformed = joined({1, 2, 3});
  malformed[11 + 8] = std::byte{10}; // a place outside of the part
  expect_refused(right, malformed, ec::malformed);
  expect_refused(right, joined({1, 2, std::numeric_limits<float>::infinity()}), ec::non_finite);
  auto fewer = right;
  fewer.weights.pop_back();
  expect_refused(fewer, joined({1, 2, 3}), ec::bad_weight);
  auto negative = right;
  negative.weights.back() = -3;
  expect_refused(negative, joined({1, 2, 3}), ec::bad_weight);
  auto sum = right;
  sum.weight = 4;
  expect_refused(sum, joined({1, 2, 3}), ec::bad_weight);
}

} // namespace
} // namespace waggle
