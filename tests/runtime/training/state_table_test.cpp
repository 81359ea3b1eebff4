#include "runtime/training/state_table.hpp"

#include <cmath>
#include <cstring>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/crypto/digest.hpp"
#include "tests/support/states.hpp"
#include "tests/support/toy_learner.hpp"

namespace waggle::testing {
namespace {

using kind = state_tensor::kind;

struct StateTable : ::testing::Test {
  state_table table{{{"embedding.weight", {4, 3}, kind::parameter},
                     {"scale", {}, kind::parameter},
                     {"exp_avg/scale", {}, kind::statistic},
                     {"exp_avg_sq/scale", {}, kind::square},
                     {"gradient/scale", {}, kind::gradient}}};
  digest schema = sha256("schema");

  [[nodiscard]] std::vector<std::byte> image() const {
    auto header = table.header(schema, 7);
    std::vector<std::byte> out(table.image_bytes());
    std::memcpy(out.data(), header.data(), header.size());
    for (std::size_t i = 0; i < table.value_count(); ++i)
      put(out, i, static_cast<float>(i));
    return out;
  }
  void put(std::vector<std::byte>& to, std::size_t value, float what) const {
    std::memcpy(to.data() + table.header_bytes() + value * sizeof(float), &what, sizeof what);
  }
};

TEST_F(StateTable, KnowsWhereEachTensorLies) {
  EXPECT_EQ(table.parameter_count(), 13u);
  EXPECT_EQ(table.value_count(), 16u);
  EXPECT_EQ(table.offset(1), 12u);
  EXPECT_EQ(table.offset(3), 14u);
  EXPECT_EQ(table.header_bytes() % 64, 0u); // values can be mapped
  auto bytes = image();
  EXPECT_EQ(testing::parameters_in(table, bytes).size(), 13 * sizeof(float));
  float last = 0;
  std::memcpy(&last, table.values_in(bytes, 3).data(), sizeof last);
  EXPECT_EQ(last, 14.0F);
}

TEST_F(StateTable, AWholeImageHasItsNumberOfSteps) {
  EXPECT_EQ(*table.check(image(), schema), 7u);
}

TEST_F(StateTable, TheTableOfAnUnknownImageCanBeRead) {
  auto bytes = image();
  EXPECT_EQ(read_state_table(bytes)->tensors(), table.tensors());
}

TEST_F(StateTable, AnotherSchemaIsReportedAsSuch) {
  EXPECT_EQ(table.check(image(), sha256("other")).error().code, ec::schema_mismatch);
}

TEST_F(StateTable, TheSameSchemaWithOtherTensorsIsRefused) {
  state_table other{{{"embedding.weight", {3, 4}, kind::parameter},
                     {"scale", {}, kind::parameter},
                     {"exp_avg/scale", {}, kind::statistic},
                     {"exp_avg_sq/scale", {}, kind::square}}};
  EXPECT_EQ(other.check(image(), schema).error().code, ec::malformed);
}

TEST_F(StateTable, CutOffAnywhereOrTooLongItIsRefused) {
  auto whole = image();
  for (std::size_t size = 0; size < whole.size(); ++size) {
    byte_span part{whole.data(), size};
    EXPECT_EQ(table.check(part, schema).error().code, ec::malformed) << size;
    EXPECT_FALSE(read_state_table(part).ok()) << size;
  }
  whole.push_back(std::byte{0});
  EXPECT_FALSE(table.check(whole, schema).ok());
  EXPECT_FALSE(read_state_table(whole).ok());
}

TEST_F(StateTable, ValuesThatWouldRuinAModelAreRefusedByName) {
  for (float value : {std::nanf(""), INFINITY, -INFINITY})
    for (std::size_t at : {0U, 12U, 13U, 14U}) {
      auto bytes = image();
      put(bytes, at, value);
      EXPECT_EQ(table.check(bytes, schema).error().code, ec::non_finite) << at;
    }
  auto bytes = image();
  put(bytes, 14, -1.0F);
  auto negative = table.check(bytes, schema);
  EXPECT_EQ(negative.error().code, ec::malformed);
  EXPECT_THAT(negative.error().detail, ::testing::HasSubstr("exp_avg_sq/scale"));
  put(bytes, 14, 1.0F);
  put(bytes, 13, -1.0F); // a first moment may be negative
  EXPECT_TRUE(table.check(bytes, schema).ok());
}

TEST_F(StateTable, AnyDamageToTheTableIsRefusedOrGivesATableThatFits) {
  auto whole = image();
  for (std::size_t at = 0; at < table.header_bytes(); ++at)
    for (auto bit : {0x01, 0x80}) {
      auto bytes = whole;
      bytes[at] ^= static_cast<std::byte>(bit);
      auto read = read_state_table(bytes);
      EXPECT_TRUE(!read.ok() || read->image_bytes() == bytes.size()) << at;
    }
}

TEST_F(StateTable, ShapesThatOverflowHaveNoElements) {
  state_tensor huge{"huge", {1ULL << 40U, 1ULL << 40U}, kind::parameter};
  EXPECT_EQ(huge.elements(), 0u);
}

TEST(LearnerState, ALearnerTakesTheStateThatAnotherSaved) {
  auto donor = make_toy_learner({});
  for (int i = 0; i < 3; ++i)
    donor->apply(std::vector<float>(donor->parameter_count(), 0.25F), 0.1);
  auto joiner = make_toy_learner({.init_seed = 77});
  ASSERT_TRUE(testing::load_state(*joiner, testing::save_state(*donor)).ok());
  EXPECT_EQ(joiner->parameters_digest(), donor->parameters_digest());
  EXPECT_EQ(joiner->optimizer_steps(), 3u);
  EXPECT_EQ(testing::save_state(*joiner), testing::save_state(*donor));
}

/// Fails after a number of reads.
class breaking_source final : public byte_source {
public:
  breaking_source(byte_span bytes, int reads) : bytes_(bytes), reads_(reads) {}
  [[nodiscard]] std::uint64_t size() const override { return bytes_.size(); }
  status read(std::uint64_t at, std::span<std::byte> out) const override {
    if (reads_-- <= 0)
      return failure{ec::io_error, "the disk is broken"};
    return bytes_.read(at, out);
  }
  [[nodiscard]] int left() const { return reads_; }

private:
  borrowed_bytes bytes_;
  mutable int reads_;
};

struct StoredState : ::testing::Test {
  std::unique_ptr<learner> donor = make_toy_learner({.init_seed = 3});
  std::unique_ptr<learner> joiner = make_toy_learner({.init_seed = 77});
  std::vector<std::byte> image = testing::save_state(*donor);
  std::vector<std::byte> before = testing::save_state(*joiner);
};

TEST_F(StoredState, IsTheOneInMemoryBehindWhatTheCallerWrites) {
  auto store = make_memory_store();
  ASSERT_TRUE(donor->save_state_to(*store, 5).ok());
  EXPECT_EQ(as_string_view(read_all(*store)->view().subspan(5)), as_string_view(image));
  ASSERT_TRUE(joiner->load_state_from(*store, 5).ok());
  EXPECT_EQ(testing::save_state(*joiner), image);
}

TEST_F(StoredState, ThatCannotBeReadChangesNothing) {
  breaking_source whole{image, 1000};
  ASSERT_TRUE(donor->tensors().check_in(whole, 0, donor->schema()).ok());
  for (int reads = 0; reads < 1000 - whole.left(); ++reads) {
    auto loaded = joiner->load_state_from(breaking_source{image, reads}, 0);
    ASSERT_FALSE(loaded.ok()) << reads;
    EXPECT_EQ(loaded.error().code, ec::io_error);
    EXPECT_EQ(testing::save_state(*joiner), before);
  }
}

TEST_F(StoredState, ThatBreaksAfterItWasCheckedEndsTheLearner) {
  breaking_source whole{image, 1000};
  ASSERT_TRUE(donor->tensors().check_in(whole, 0, donor->schema()).ok());
  breaking_source broken{image, 1000 - whole.left() + 1};
  EXPECT_THROW((void)joiner->load_state_from(broken, 0), std::runtime_error);
}

} // namespace
} // namespace waggle::testing
