#include "runtime/training/checkpoint_store.hpp"

#include <gtest/gtest.h>
#include <stdlib.h>

#include "runtime/crypto/digest.hpp"
#include "tests/support/memory_disk.hpp"
#include "tests/support/scratch_folder.hpp"
#include "tests/support/states.hpp"

namespace waggle {
namespace {

struct CheckpointStore : ::testing::Test {
  std::string text_of(std::uint64_t epoch) { return "learner at " + std::to_string(epoch); }

  status save(std::uint64_t epoch, const digest& schema, const std::string& branch = "ours",
              const std::string& own = {}) {
    auto text = text_of(epoch);
    history past{sha256(branch), {}, {}, epoch};
    auto image =
      testing::encode_state({epoch_id{epoch}, schema, sha256(text), past, as_byte_span(text)});
    own_progress kept{.own = own};
    auto saved = store.save(borrowed_bytes{image.view()}, kept);
    return saved ? status{done{}} : status{saved.error()};
  }
  status save(std::uint64_t epoch) { return save(epoch, schema); }
  static std::string name(int serial, std::uint64_t epoch, const std::string& branch = "ours") {
    return "checkpoint-" + std::to_string(serial) + "-" + std::to_string(epoch) + "-"
           + short_name(sha256(branch)) + ".wgl";
  }
  static std::string own_name(int serial, std::uint64_t epoch) {
    auto image = name(serial, epoch);
    return image.substr(0, image.size() - 4) + ".own";
  }

  std::uint64_t newest() {
    auto found = store.load_newest(schema);
    EXPECT_TRUE(found.ok());
    if (!found.ok() || !found->newest)
      return 0;
    auto state = decode_state(as_byte_span(found->newest->image));
    EXPECT_TRUE(state.ok());
    EXPECT_EQ(state->epoch, found->newest->epoch);
    EXPECT_EQ(as_string_view(state->learner), text_of(state->epoch.value()));
    return state->epoch.value();
  }
  std::vector<std::string> names() { return *files->list("/data"); }
  void cut(const std::string& name, std::size_t bytes) {
    files->corrupt("/data/" + name, files->read("/data/" + name, 1_MiB)->substr(0, bytes));
  }

  std::shared_ptr<memory_disk> files = std::make_shared<memory_disk>();
  checkpoint_store store{files, "/data"};
  digest schema = sha256("schema");
};

TEST_F(CheckpointStore, AnEmptyFolderHoldsNoneAndThatIsNoError) {
  auto found = store.load_newest(schema);
  EXPECT_FALSE(found->newest);
  EXPECT_TRUE(found->skipped.empty());
}

TEST_F(CheckpointStore, KeepsTheCurvesOfTheRunInOneFile) {
  EXPECT_EQ(*store.load_curves(), "");
  for (std::uint64_t epoch : {8, 9, 10}) {
    ASSERT_TRUE(save(epoch).ok());
    ASSERT_TRUE(store.save_curves("up to " + std::to_string(epoch)).ok());
  }
  EXPECT_EQ(*store.load_curves(), "up to 10");
  EXPECT_EQ(newest(), 10U);
  files->corrupt("/data/run.curves", std::string(1'000'000, 'x'));
  EXPECT_EQ(store.load_curves().error().code, ec::oversize);
}

TEST_F(CheckpointStore, KeepsTheLastTwoAndFindsTheNewest) {
  for (std::uint64_t epoch : {8, 9, 10, 11})
    ASSERT_TRUE(save(epoch).ok());
  EXPECT_EQ(names(), (std::vector<std::string>{name(3, 10), name(4, 11)}));
  EXPECT_EQ(newest(), 11U);
}

TEST_F(CheckpointStore, KeepsAsManyAsItIsTold) {
  store = checkpoint_store{files, "/data", 4};
  for (std::uint64_t epoch : {1, 2, 3, 4, 5})
    ASSERT_TRUE(save(epoch).ok());
  EXPECT_EQ(names().size(), 4U);
  store = checkpoint_store{files, "/data", 1};
  ASSERT_TRUE(save(6).ok());
  EXPECT_EQ(names(), std::vector<std::string>{name(6, 6)});
}

// An export must not silently be of an older epoch.
TEST_F(CheckpointStore, TheLastOneIsReadWhateverItIsOfAndOfADamagedOneTheOneBeforeAndThatIsSaid) {
  EXPECT_EQ(store.read_last().error().code, ec::not_found);
  ASSERT_TRUE(save(1).ok());
  ASSERT_TRUE(save(2, sha256("another model")).ok());
  auto last = store.read_last();
  EXPECT_EQ(last->newest->epoch, epoch_id{2});
  EXPECT_TRUE(last->skipped.empty());
  cut(name(2, 2), 130);
  auto older = store.read_last();
  EXPECT_EQ(older->newest->epoch, epoch_id{1});
  ASSERT_EQ(older->skipped.size(), 1U);
  EXPECT_NE(older->skipped[0].detail.find(name(2, 2)), std::string::npos);
  cut(name(1, 1), 130);
  auto damaged = store.read_last();
  EXPECT_NE(damaged.error().detail.find(name(2, 2)), std::string::npos) << damaged.error().detail;
}

TEST(CheckpointsBelow, AreThoseOfThePeerInTheFolderUnlessThereAreSeveral) {
  namespace fs = std::filesystem;
  testing::scratch_folder scratch;
  const auto& home = scratch.path();
  EXPECT_EQ(*checkpoints_below(home), home);
  fs::create_directories(home / "run-1" / "checkpoints");
  EXPECT_EQ(*checkpoints_below(home), home / "run-1" / "checkpoints");
  EXPECT_EQ(*checkpoints_below(home / "run-1"), home / "run-1" / "checkpoints");
  EXPECT_EQ(*checkpoints_below(home / "run-1" / "checkpoints"), home / "run-1" / "checkpoints");
  fs::create_directories(home / "run-1-2" / "checkpoints");
  auto several = checkpoints_below(home);
  EXPECT_NE(several.error().detail.find((home / "run-1").string()), std::string::npos);
  fs::create_directories(home / "checkpoints");
  EXPECT_EQ(*checkpoints_below(home), home / "checkpoints") << "its own";
}

TEST_F(CheckpointStore, ATornCheckpointFallsBackToTheOneBefore) {
  ASSERT_TRUE(save(1).ok());
  ASSERT_TRUE(save(2).ok());
  for (std::size_t bytes : {190U, 130U, 60U, 7U, 0U}) {
    cut(name(2, 2), bytes);
    EXPECT_EQ(newest(), 1U) << bytes << " bytes left";
  }
}

TEST_F(CheckpointStore, ABadHashFallsBackAndIsReported) {
  ASSERT_TRUE(save(1).ok());
  ASSERT_TRUE(save(2).ok());
  auto image = *files->read("/data/" + name(2, 2), 1_MiB);
  image.back() = static_cast<char>(image.back() ^ 1);
  files->corrupt("/data/" + name(2, 2), image);
  auto found = store.load_newest(schema);
  ASSERT_TRUE(found.ok() && found->newest);
  EXPECT_EQ(found->newest->epoch, epoch_id{1});
  ASSERT_EQ(found->skipped.size(), 1U);
  EXPECT_EQ(found->skipped[0].code, ec::hash_mismatch);
  EXPECT_NE(found->skipped[0].detail.find(name(2, 2)), std::string::npos);
}

TEST_F(CheckpointStore, EachHasItsOwnProgressBesideIt) {
  ASSERT_TRUE(save(1, schema, "ours", "scale 2").ok());
  ASSERT_TRUE(save(2, schema, "ours", "scale 4").ok());
  auto found = store.load_newest(schema);
  ASSERT_TRUE(found.ok() && found->newest);
  EXPECT_EQ(found->own.own, "scale 4");
  EXPECT_EQ(as_string_view(decode_state(as_byte_span(found->newest->image))->learner), text_of(2));
  EXPECT_EQ(names(),
            (std::vector<std::string>{own_name(1, 1), name(1, 1), own_name(2, 2), name(2, 2)}));
  cut(name(2, 2), 7);
  EXPECT_EQ(store.load_newest(schema)->own.own, "scale 2") << "that of the one before";
  ASSERT_TRUE(save(3, schema, "ours", "scale 8").ok());
  EXPECT_EQ(names(),
            (std::vector<std::string>{own_name(2, 2), name(2, 2), own_name(3, 3), name(3, 3)}));
}

TEST_F(CheckpointStore, OwnProgressThatIsMissingIsSaidAndCostsNoCheckpoint) {
  ASSERT_TRUE(save(1, schema, "ours", "scale 2").ok());
  ASSERT_TRUE(files->remove("/data/" + own_name(1, 1)).ok());
  auto found = store.load_newest(schema);
  ASSERT_TRUE(found.ok() && found->newest);
  EXPECT_TRUE(found->own.empty());
  EXPECT_EQ(found->own_trouble.code, ec::not_found);
  EXPECT_NE(found->own_trouble.detail.find(own_name(1, 1)), std::string::npos);
}

// The machine lost power after the first of the two files.
TEST_F(CheckpointStore, OwnProgressWithoutItsCheckpointIsNotUsedAndIsRemoved) {
  ASSERT_TRUE(save(1, schema, "ours", "scale 2").ok());
  ASSERT_TRUE(save(2, schema, "ours", "scale 4").ok());
  ASSERT_TRUE(files->remove("/data/" + name(2, 2)).ok());
  EXPECT_EQ(store.load_newest(schema)->own.own, "scale 2");
  ASSERT_TRUE(save(7, schema, "ours", "scale 8").ok());
  EXPECT_EQ(names(),
            (std::vector<std::string>{own_name(1, 1), name(1, 1), own_name(2, 7), name(2, 7)}));
}

TEST_F(CheckpointStore, OwnProgressCountsOnlyForTheStateThatItNames) {
  ASSERT_TRUE(save(1, schema, "ours", "scale 2").ok());
  ASSERT_TRUE(save(2, schema, "ours", "scale 4").ok());
  files->corrupt("/data/" + own_name(2, 2), *files->read("/data/" + own_name(1, 1), 1_MiB));
  auto found = store.load_newest(schema);
  ASSERT_TRUE(found.ok() && found->newest);
  EXPECT_EQ(found->newest->epoch, epoch_id{2});
  EXPECT_TRUE(found->own.empty());
  EXPECT_EQ(found->own_trouble.code, ec::wrong_run);
  EXPECT_NE(found->own_trouble.detail.find(own_name(2, 2)), std::string::npos);
}

TEST_F(CheckpointStore, DamagedOwnProgressCostsNoCheckpoint) {
  ASSERT_TRUE(save(1, schema, "ours", "scale 2").ok());
  auto whole = *files->read("/data/" + own_name(1, 1), 1_MiB);
  auto flipped = whole;
  flipped.back() = static_cast<char>(flipped.back() ^ 1);
  for (const auto& bad : {flipped, whole.substr(0, 20), std::string{}, whole + "x",
                          whole + std::string(8192, 'x'), "X" + whole.substr(1)}) {
    files->corrupt("/data/" + own_name(1, 1), bad);
    auto found = store.load_newest(schema);
    ASSERT_TRUE(found.ok() && found->newest);
    EXPECT_TRUE(found->own.empty());
    EXPECT_TRUE(found->skipped.empty());
    EXPECT_NE(found->own_trouble.code, ec::none) << bad.size();
    EXPECT_NE(found->own_trouble.detail.find(own_name(1, 1)), std::string::npos);
  }
}

TEST_F(CheckpointStore, AllDamagedIsNoneAndNoError) {
  ASSERT_TRUE(save(1).ok());
  ASSERT_TRUE(save(2).ok());
  cut(name(1, 1), 3);
  cut(name(2, 2), 3);
  auto found = store.load_newest(schema);
  EXPECT_FALSE(found->newest);
  EXPECT_EQ(found->skipped.size(), 2U);
}

TEST_F(CheckpointStore, AFullDiskKeepsTheOldOnes) {
  ASSERT_TRUE(save(1).ok());
  ASSERT_TRUE(save(2).ok());
  files->fail_writes(failure{ec::io_error, "no space left"});
  EXPECT_EQ(save(3).error().code, ec::io_error);
  EXPECT_EQ(names(), (std::vector<std::string>{name(1, 1), name(2, 2)}));
  EXPECT_EQ(newest(), 2U);
}

TEST_F(CheckpointStore, ADiskThatIsFullBeforeTheImageKeepsNoOwnProgressOfIt) {
  /// An image that cannot be written once there are more than two files.
  struct third_file final : byte_source {
    third_file(memory_disk& on, byte_span image) : disk(on), bytes(image) {}
    [[nodiscard]] std::uint64_t size() const override { return bytes.size(); }
    status read(std::uint64_t at, std::span<std::byte> out) const override {
      if (disk.list("/data")->size() > 2)
        return failure{ec::io_error, "no space left"};
      return bytes.read(at, out);
    }
    memory_disk& disk;
    borrowed_bytes bytes;
  };
  ASSERT_TRUE(save(1, schema, "ours", "scale 2").ok());
  for (std::uint64_t epoch : {2, 3, 4}) {
    auto text = text_of(epoch);
    history past{sha256("ours"), {}, {}, epoch};
    auto image =
      testing::encode_state({epoch_id{epoch}, schema, sha256(text), past, as_byte_span(text)});
    own_progress kept{.own = "scale 4"};
    EXPECT_EQ(store.save(third_file{*files, image.view()}, kept).error().detail, "no space left");
    EXPECT_EQ(names(), (std::vector<std::string>{own_name(1, 1), name(1, 1)}));
  }
  EXPECT_EQ(store.load_newest(schema)->own.own, "scale 2");
}

TEST_F(CheckpointStore, OtherFilesAreNeitherReadNorRemoved) {
  files->corrupt("/data/notes.txt", "mine");
  files->corrupt("/data/checkpoint-.wgl", "mine");
  files->corrupt("/data/checkpoint-9x.wgl", "mine");
  files->corrupt("/data/checkpoint-9-9-a.wgl.new", "a draft");
  for (std::uint64_t epoch : {1, 2, 3})
    ASSERT_TRUE(save(epoch).ok());
  EXPECT_EQ(newest(), 3U);
  EXPECT_EQ(names().size(), 6U);
  store.remove_drafts();
  EXPECT_EQ(names().size(), 5U) << "without the draft, whose writer is gone";
}

TEST_F(CheckpointStore, ACheckpointOfAnotherModelIsSkipped) {
  ASSERT_TRUE(save(1).ok());
  ASSERT_TRUE(save(51, sha256("another model"), "theirs").ok());
  EXPECT_EQ(newest(), 1U);
  auto theirs = store.load_newest(sha256("another model"));
  ASSERT_TRUE(theirs.ok() && theirs->newest);
  EXPECT_EQ(theirs->newest->epoch, epoch_id{51});
}

TEST_F(CheckpointStore, TheNewestIsTheOneWrittenLastWhateverItsEpoch) {
  for (std::uint64_t epoch : {143, 144})
    ASSERT_TRUE(save(epoch, schema, "an old history").ok());
  for (std::uint64_t epoch : {62, 63, 64})
    ASSERT_TRUE(save(epoch).ok());
  EXPECT_EQ(newest(), 64U);
  EXPECT_EQ(names(),
            (std::vector<std::string>{name(2, 144, "an old history"), name(4, 63), name(5, 64)}))
    << "the last checkpoint of an abandoned history is kept";
}

TEST_F(CheckpointStore, FindsTheLastOneOfAHistory) {
  ASSERT_TRUE(save(143, schema, "an old history").ok());
  ASSERT_TRUE(save(62).ok());
  EXPECT_EQ(**store.last_of(sha256("an old history")), "/data/" + name(1, 143, "an old history"));
  EXPECT_FALSE(*store.last_of(sha256("nobody's")));
}

TEST_F(CheckpointStore, HistoriesThatLostAreKeptUpToABound) {
  for (int i = 0; i < 20; ++i)
    ASSERT_TRUE(save(7, schema, "history " + std::to_string(i)).ok());
  EXPECT_EQ(names().size(), 1 + checkpoint_store::histories_max);
  EXPECT_EQ(newest(), 7U);
}

TEST_F(CheckpointStore, AFileThatIsTooLongForTheModelIsSkippedUnread) {
  ASSERT_TRUE(save(8).ok());
  ASSERT_TRUE(save(9).ok());
  auto good = files->read("/data/" + name(1, 8), 1_MiB);
  files->corrupt("/data/" + name(2, 9), *good + std::string(1000, '\0'));
  auto found = store.load_newest(schema, good->size());
  ASSERT_TRUE(found->newest);
  EXPECT_EQ(found->newest->epoch, epoch_id{8}) << "the next older one";
  ASSERT_EQ(found->skipped.size(), 1U);
  EXPECT_EQ(found->skipped[0].code, ec::oversize);
}

TEST_F(CheckpointStore, OneOfAnotherLearnerIsSkippedWithTheOptionsWithWhichItFits) {
  using kind = state_tensor::kind;
  const state_tensor head{"head", {4, 2}, kind::parameter};
  const state_tensor square{"exp_avg_sq/head", {4, 2}, kind::square};
  const state_tensor momentum{"momentum/head", {4, 2}, kind::statistic};
  const state_tensor plateau{"schedule/plateau", {5}, kind::statistic};
  const state_tensor ledger{"data/ledger", {5}, kind::statistic};
  const state_tensor wide{"head", {4, 3}, kind::parameter};
  auto said_of = [&](const state_table& theirs, const state_table& ours) {
    files = std::make_shared<memory_disk>();
    store = checkpoint_store{files, "/data"};
    auto text =
      theirs.header(sha256("theirs"), 0) + std::string(theirs.value_count() * sizeof(float), '\0');
    auto image =
      testing::encode_state({epoch_id{7}, sha256("theirs"), sha256(text), {}, as_byte_span(text)});
    EXPECT_TRUE(store.save(borrowed_bytes{image.view()}, {}));
    auto found = store.load_newest(schema, state_header_bytes + ours.image_bytes(), &ours);
    EXPECT_TRUE(found.ok() && !found->newest && found->skipped.size() == 1U);
    auto said = found.ok() && !found->skipped.empty() ? found->skipped[0].detail : "";
    EXPECT_NE(said.find("/data/checkpoint-1-7-"), std::string::npos) << said;
    return said.substr(said.find(": ") + 2);
  };
  const state_table adam{{head, square}};
  EXPECT_EQ(said_of(adam, state_table{{head, square, plateau}}),
            "it has no schedule; to use it, start this peer with the --schedule with which it was "
            "written");
  EXPECT_EQ(said_of(adam, state_table{{head, square, ledger}}),
            "it has no ledger of samples; to use it, start this peer with the --passes with which "
            "it was written");
  EXPECT_EQ(said_of(state_table{{head, square, plateau}}, adam),
            "it has schedule, which this peer's state has not; to use it, start this peer with the "
            "--schedule with which it was written")
    << "it is longer";
  EXPECT_EQ(said_of(adam, state_table{{head, momentum}}),
            "it has exp_avg_sq, and no momentum; to use it, start this peer with the --optimizer "
            "with which it was written");
  const state_table anchored{{head, {"outer/momentum/head", {4, 2}, kind::outer}, square}};
  const state_table scheduled{{head, {"schedule/daso", {5}, kind::outer}, square}};
  for (const auto& [a, b] : {std::pair{adam, anchored}, {anchored, scheduled}, {scheduled, adam}})
    EXPECT_EQ(said_of(a, b),
              "it is of another --strategy; to use it, start this peer with the one with which it "
              "was written, or begin a new run from its parameters with --from");
  EXPECT_EQ(said_of(adam, state_table{{wide}}),
            "it is of a model with other parameters (head of 4 x 2 there, head of 4 x 3 here); to "
            "use it, start this peer with the --model, --layers, --width, --heads and --context "
            "with which it was written");
  EXPECT_NE(said_of(adam, adam).find("the --optimizer with its numbers"), std::string::npos);
}

TEST_F(CheckpointStore, OnlyItsOwnDraftsAreRemoved) {
  ASSERT_TRUE(save(8).ok());
  files->corrupt("/data/" + name(2, 9) + ".new", "half");
  files->corrupt("/data/checkpoint-2-9-ae0bec9e.own.new", "half");
  files->corrupt("/data/notes.new", "of the operator");
  EXPECT_EQ(newest(), 8U);
  EXPECT_EQ(names().size(), 4U) << "the one who writes them may be alive";
  store.remove_drafts();
  EXPECT_EQ(names(), (std::vector<std::string>{name(1, 8), "notes.new"}));
}

} // namespace
} // namespace waggle
