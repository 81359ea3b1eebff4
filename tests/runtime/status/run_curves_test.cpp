#include "runtime/status/run_curves.hpp"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "runtime/crypto/digest.hpp"
#include "runtime/status/status_board.hpp"

namespace waggle {
namespace {

using json = nlohmann::ordered_json;

const swarm_time begin = swarm_time_from(1'700'000'000'000'000'000);

struct RunCurves : testing::Test {
  RunCurves() {
    status.phase = trainer_phase::training;
    status.past.branch = sha256("ours");
    run.num_peers = 2;
    run.peers.resize(2);
    run.peers[0].vitals.samples_per_second = 100.0F;
    run.peers[1].vitals.samples_per_second = 50.0F;
    show();
  }
  void show() { curves.on_status(status, run, now); }
  /// An epoch each second.
  void train_to(std::uint64_t epoch) {
    status.samples_used = 1;
    status.learning_rate = 0.01;
    status.effective_batch = 64;
    while (status.epoch.value() < epoch) {
      status.epoch = status.epoch.next();
      status.loss = 3 - 0.001 * static_cast<double>(status.epoch.value());
      now += 1s;
      show();
    }
  }
  json shown() const { return json::parse(curves.json()); }
  std::uint64_t first() const { return shown()["epoch"][0].get<std::uint64_t>(); }

  training_status status;
  swarm_progress run;
  swarm_time now = begin;
  run_curves curves;
};

TEST_F(RunCurves, BeginWithTheFirstLossAndHaveAPointForEachEpoch) {
  status.first_loss = 3.5;
  train_to(3);
  auto all = shown();
  EXPECT_EQ(all["epoch"], (json{0, 1, 2, 3}));
  EXPECT_EQ(all["loss"], (json{3.5, 2.999, 2.998, 2.997}));
  EXPECT_EQ(all["samples"], (json{0, 64, 128, 192}));
  EXPECT_EQ(all["t"][3], 1'700'000'003'000);
  EXPECT_EQ(all["samples_per_second"][1], 150) << "of all peers";
  EXPECT_EQ(all["peers"][1], 2);
  EXPECT_EQ(all["learning_rate"], (json{nullptr, 0.01, 0.01, 0.01}));
  EXPECT_EQ(all["eval_loss"][3], nullptr);
  EXPECT_EQ(all["best"]["loss"], (json{{"epoch", 3}, {"value", 2.997}}));
  EXPECT_FALSE(all["best"].contains("eval_loss"));
}

TEST_F(RunCurves, WhatIsNotKnownIsNullAndNotZero) {
  run = {};
  status.epoch = epoch_id{7}; // a loop that reports nothing
  now += 1s;
  show();
  auto all = shown();
  ASSERT_EQ(all["epoch"], (json{7}));
  for (const auto& row : curve_table())
    EXPECT_EQ(all[std::string{row.name}][0], nullptr) << row.name;
}

TEST_F(RunCurves, AStatusBeforeTheModelIsThereIsNoEpoch) {
  run_curves fresh;
  training_status starting;
  fresh.on_status(starting, run, now);
  status.epoch = epoch_id{500}; // resumed
  fresh.on_status(status, run, now);
  EXPECT_EQ(json::parse(fresh.json())["epoch"], json::array());
}

TEST_F(RunCurves, OfAPeerThatResumesWithoutItsCurvesBeginAtItsCheckpoint) {
  run_curves fresh;
  status.epoch = epoch_id{500};
  fresh.on_status(status, run, now);
  status.first_loss = 2.5; // of its first passes
  status.epoch = epoch_id{501};
  fresh.on_status(status, run, now);
  EXPECT_EQ(json::parse(fresh.json())["epoch"], (json{501}));
}

TEST_F(RunCurves, AnEvaluationIsShownOnceAtItsEpoch) {
  train_to(10);
  status.eval_epoch = epoch_id{8};
  status.eval_loss = 1.25;
  status.eval_accuracy = 0.5;
  train_to(12);
  auto all = shown();
  EXPECT_EQ(all["eval_loss"][7], 1.25); // epochs from 1 on
  EXPECT_EQ(all["eval_loss"][8], nullptr);
  EXPECT_EQ(all["eval_accuracy"][7], 0.5);
  EXPECT_EQ(all["best"]["eval_loss"]["epoch"], 8);
}

TEST_F(RunCurves, AJoinerHasThemFromTheFirstEpochOn) {
  train_to(2'000);
  run_curves joiner;
  auto theirs = std::exchange(status, {});
  status.phase = trainer_phase::joining;
  joiner.on_status(status, run, now);
  auto seen = joiner.last();
  EXPECT_FALSE(seen);
  status = theirs;
  status.loss = std::numeric_limits<double>::quiet_NaN();
  status.state_downloads = 1;
  joiner.on_status(status, run, now); // the state is loaded
  status.epoch = epoch_id{2'001};
  joiner.on_status(status, run, now); // before the donor has answered
  ASSERT_TRUE(joiner.take(curves.image(run_curves::points_sent), seen, epoch_id{2'000}, now).ok());
  auto all = json::parse(joiner.json());
  EXPECT_EQ(all["epoch"][0], 1);
  EXPECT_EQ(all["epoch"].back(), 2'001);
  EXPECT_EQ(all["loss"].back(), nullptr) << "it has made no pass yet";
  EXPECT_LE(all["epoch"].size(), run_curves::points_sent + 1);
  EXPECT_EQ(all["samples"].back(), 2'001 * 64);
}

TEST_F(RunCurves, OfAnotherHistoryOnlyTheCommonPartStays) {
  train_to(20);
  auto majority = status.past;
  status.past = {sha256("provisional"), majority.branch, epoch_id{20}, 0, 0};
  train_to(30);
  EXPECT_EQ(shown()["epoch"].back(), 30) << "our own branch goes on";
  status.past = majority;
  status.epoch = epoch_id{25};
  show();
  EXPECT_EQ(shown()["epoch"].back(), 20);
  train_to(26);
  EXPECT_EQ(shown()["epoch"].back(), 26);
}

TEST_F(RunCurves, BytesThatAreDamagedChangeNothing) {
  train_to(5);
  auto before = curves.json();
  auto image = curves.image();
  image[60] ^= 1;
  EXPECT_EQ(curves.take(image, {}, epoch_id{100}, now).error().code, ec::hash_mismatch);
  EXPECT_EQ(curves.take("", {}, epoch_id{100}, now).error().code, ec::malformed);
  EXPECT_EQ(curves.json(), before);
}

TEST_F(RunCurves, APageOfTheWholeRunIsSmall) {
  status.eval_loss = 1;
  train_to(40'000);
  auto body = curves.json(600);
  EXPECT_LT(body.size(), 45'000U);
  EXPECT_GT(json::parse(body)["epoch"].size(), 300U);
}

TEST(StatusBoardCurves, ThePageTakesTheNumberOfPoints) {
  auto curves = std::make_shared<run_curves>();
  status_board board{
    std::make_shared<metric_families>(std::make_shared<prometheus::Registry>(), "r", "p"), nullptr,
    page_audience::none, curves};
  auto ask = [&](const std::string& query) {
    return board.answer({"GET", "/api/v1/curves" + query});
  };
  EXPECT_EQ(json::parse(ask("").body)["epoch"], json::array());
  EXPECT_EQ(ask("?points=600").status, 200U);
  for (const auto* query : {"?points=1", "?points=", "?points=-3", "?points=6x", "?x",
                            "?points=2&a", "?points=99999999999999999999999"}) {
    EXPECT_EQ(ask(query).status, 400U) << query;
    EXPECT_TRUE(json::parse(ask(query).body).contains("error")) << query;
  }
}

} // namespace
} // namespace waggle
