#include "runtime/training/keeping_up.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace waggle {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

/// 100 MB at 0.5 MB/s take 200 s; meanwhile 400 epochs produce 13.3 GB of updates, of which 1 GB is
/// kept.
slow_download slow() {
  slow_download s;
  s.state_bytes = 100'000'000;
  s.received_bytes = 15'000'000;
  s.seconds = 30;
  s.epoch_seconds = 0.5;
  s.update_bytes = 33'000'000;
  s.kept_bytes_max = 1'000'000'000;
  s.target_batch_size = 128;
  return s;
}

TEST(KeepingUp, ReportsAllNumbers) {
  EXPECT_THAT(cannot_keep_up(slow()),
              AllOf(HasSubstr("after 30 s"), HasSubstr("15.0 MB of a state of 100.0 MB"),
                    HasSubstr("0.50 MB/s"), HasSubstr("takes the others 0.50 s"),
                    HasSubstr("33.0 MB of updates, of which 1000 MB are kept"),
                    HasSubstr("target batch size of 2112")));
}

TEST(KeepingUp, TheSufficientTargetSuffices) {
  auto s = slow();
  auto target = sufficient_target_batch(s);
  s.epoch_seconds *= static_cast<double>(target) / static_cast<double>(s.target_batch_size);
  auto whole =
    s.seconds * static_cast<double>(s.state_bytes) / static_cast<double>(s.received_bytes);
  EXPECT_LE(whole / s.epoch_seconds * static_cast<double>(s.update_bytes),
            static_cast<double>(s.kept_bytes_max));
}

TEST(KeepingUp, WithoutAMeasureNothingIsPromised) {
  auto s = slow();
  s.received_bytes = 0;
  EXPECT_EQ(sufficient_target_batch(s), 0U);
  EXPECT_THAT(cannot_keep_up(s), ::testing::Not(HasSubstr("target batch")));
}

} // namespace
} // namespace waggle
