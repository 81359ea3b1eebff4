#include "runtime/training/checkpoint_store.hpp"

#include <gtest/gtest.h>

#include "runtime/crypto/digest.hpp"

namespace waggle {
namespace {

struct CheckpointStore : testing::Test {
  std::string text_of(std::uint64_t epoch) { return "learner at " + std::to_string(epoch); }

  status save(std::uint64_t epoch, const digest& schema) {
    auto text = text_of(epoch);
    return store.save({epoch_id{epoch}, schema, sha256(text), as_byte_span(text)});
  }
  status save(std::uint64_t epoch) { return save(epoch, schema); }

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
  ASSERT_TRUE(found.ok());
  EXPECT_FALSE(found->newest);
  EXPECT_TRUE(found->skipped.empty());
}

TEST_F(CheckpointStore, KeepsTheLastTwoAndFindsTheNewestByNumber) {
  for (std::uint64_t epoch : {8, 9, 10, 11})
    ASSERT_TRUE(save(epoch).ok());
  EXPECT_EQ(names(), (std::vector<std::string>{"checkpoint-10.wgl", "checkpoint-11.wgl"}));
  EXPECT_EQ(newest(), 11U);
}

TEST_F(CheckpointStore, ATornCheckpointFallsBackToTheOneBefore) {
  ASSERT_TRUE(save(1).ok());
  ASSERT_TRUE(save(2).ok());
  for (std::size_t bytes : {0U, 7U, 60U, 130U}) {
    cut("checkpoint-2.wgl", bytes);
    EXPECT_EQ(newest(), 1U) << bytes << " bytes left";
    ASSERT_TRUE(save(2).ok());
  }
}

TEST_F(CheckpointStore, ABadHashFallsBackAndIsReported) {
  ASSERT_TRUE(save(1).ok());
  ASSERT_TRUE(save(2).ok());
  auto image = *files->read("/data/checkpoint-2.wgl", 1_MiB);
  image.back() = static_cast<char>(image.back() ^ 1);
  files->corrupt("/data/checkpoint-2.wgl", image);
  auto found = store.load_newest(schema);
  ASSERT_TRUE(found.ok() && found->newest);
  EXPECT_EQ(found->newest->epoch, epoch_id{1});
  ASSERT_EQ(found->skipped.size(), 1U);
  EXPECT_EQ(found->skipped[0].code, ec::hash_mismatch);
  EXPECT_NE(found->skipped[0].detail.find("checkpoint-2.wgl"), std::string::npos);
}

TEST_F(CheckpointStore, AllDamagedIsNoneAndNoError) {
  ASSERT_TRUE(save(1).ok());
  ASSERT_TRUE(save(2).ok());
  cut("checkpoint-1.wgl", 3);
  cut("checkpoint-2.wgl", 3);
  auto found = store.load_newest(schema);
  ASSERT_TRUE(found.ok());
  EXPECT_FALSE(found->newest);
  EXPECT_EQ(found->skipped.size(), 2U);
}

TEST_F(CheckpointStore, AFullDiskKeepsTheOldOnes) {
  ASSERT_TRUE(save(1).ok());
  ASSERT_TRUE(save(2).ok());
  files->fail_writes(failure{ec::io_error, "no space left"});
  EXPECT_EQ(save(3).error().code, ec::io_error);
  EXPECT_EQ(names(), (std::vector<std::string>{"checkpoint-1.wgl", "checkpoint-2.wgl"}));
  EXPECT_EQ(newest(), 2U);
}

TEST_F(CheckpointStore, OtherFilesAreNeitherReadNorRemoved) {
  files->corrupt("/data/notes.txt", "mine");
  files->corrupt("/data/checkpoint-.wgl", "mine");
  files->corrupt("/data/checkpoint-9x.wgl", "mine");
  files->corrupt("/data/checkpoint-9.wgl.new", "a draft");
  for (std::uint64_t epoch : {1, 2, 3})
    ASSERT_TRUE(save(epoch).ok());
  EXPECT_EQ(newest(), 3U);
  EXPECT_EQ(names().size(), 6U);
}

TEST_F(CheckpointStore, ACheckpointOfAnotherModelIsSkippedAndKept) {
  ASSERT_TRUE(save(50, sha256("another model")).ok());
  ASSERT_TRUE(save(51, sha256("another model")).ok());
  for (std::uint64_t epoch : {1, 2, 3})
    ASSERT_TRUE(save(epoch).ok());
  EXPECT_EQ(newest(), 3U);
  EXPECT_EQ(names(), (std::vector<std::string>{"checkpoint-2.wgl", "checkpoint-3.wgl",
                                               "checkpoint-50.wgl", "checkpoint-51.wgl"}));
  auto theirs = store.load_newest(sha256("another model"));
  ASSERT_TRUE(theirs.ok() && theirs->newest);
  EXPECT_EQ(theirs->newest->epoch, epoch_id{51});
}

TEST_F(CheckpointStore, WhatWasJustWrittenSurvivesDamagedOnesOfLaterEpochs) {
  files->corrupt("/data/checkpoint-50.wgl", "damaged");
  files->corrupt("/data/checkpoint-51.wgl", "damaged");
  ASSERT_TRUE(save(1).ok());
  EXPECT_EQ(newest(), 1U);
}

} // namespace
} // namespace waggle
