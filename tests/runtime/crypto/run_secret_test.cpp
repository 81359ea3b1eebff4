#include "runtime/crypto/run_secret.hpp"

#include <gtest/gtest.h>

namespace waggle {
namespace {

TEST(RunSecret, ShowsKnowledgeOfTheNameToThoseWhoKnowIt) {
  run_secret ann{"demo"};
  run_secret bob{"demo"};
  run_secret stranger{"demo2"};
  auto shown = ann.proof("connection 1");
  EXPECT_TRUE(bob.proves("connection 1", shown.raw()));
  EXPECT_FALSE(bob.proves("connection 2", shown.raw()));
  EXPECT_FALSE(bob.proves("connection 1", stranger.proof("connection 1").raw()));
  EXPECT_FALSE(bob.proves("connection 1", shown.raw().substr(1)));
  EXPECT_FALSE(bob.proves("connection 1", ""));
}

TEST(RunSecret, MasksATextForThoseWhoKnowTheName) {
  run_secret ann{"demo"};
  for (std::size_t size : {0U, 1U, 31U, 32U, 33U, 3072U}) {
    std::string text(size, 'x');
    auto hidden = ann.masked("connection 1", text);
    EXPECT_EQ(hidden.size(), size);
    EXPECT_EQ(run_secret{"demo"}.masked("connection 1", hidden), text);
    if (size < 8)
      continue;
    EXPECT_NE(hidden, text);
    EXPECT_NE(run_secret{"demo2"}.masked("connection 1", hidden), text);
    EXPECT_NE(ann.masked("connection 2", hidden), text);
    EXPECT_EQ(hidden.find("xxxx"), std::string::npos);
  }
}

/// A mask must not be what a proof shows.
TEST(RunSecret, KeepsProofsAndMasksApart) {
  run_secret ann{"demo"};
  auto shown = ann.proof("connection");
  EXPECT_NE(ann.masked("connection", std::string(32, '\0')), std::string{shown.raw()});
}

} // namespace
} // namespace waggle
