#include "runtime/net/page_proof.hpp"

#include <gtest/gtest.h>

namespace waggle::net {
namespace {

constexpr swarm_time noon{std::chrono::hours{24 * 365 * 50}};

TEST(PageProof, IsGoodForOnePageOfOneRunForAMinute) {
  run_secret run{make_swarm_key()};
  auto shown = page_proof(run, "/api/v1/status", noon);
  EXPECT_TRUE(proves_page(run, "/api/v1/status", shown, noon));
  EXPECT_TRUE(proves_page(run, "/api/v1/status", shown, noon + std::chrono::seconds{60}));
  EXPECT_TRUE(proves_page(run, "/api/v1/status", shown, noon - std::chrono::seconds{60}));
  EXPECT_FALSE(proves_page(run, "/api/v1/status", shown, noon + std::chrono::seconds{61}));
  EXPECT_FALSE(proves_page(run, "/api/v1/status", shown, noon - std::chrono::seconds{62}));
  EXPECT_FALSE(proves_page(run, "/api/v1/peers", shown, noon));
  EXPECT_FALSE(proves_page(run_secret{make_swarm_key()}, "/api/v1/status", shown, noon));
}

TEST(PageProof, AnythingElseProvesNothing) {
  run_secret run{make_swarm_key()};
  auto shown = page_proof(run, "/", noon);
  auto seconds = shown.substr(7, shown.rfind(' ') - 7);
  auto proof = shown.substr(shown.rfind(' ') + 1);
  for (const auto& text :
       {std::string{}, std::string{"Waggle "}, "Waggle " + seconds, "Waggle " + seconds + " ",
        "Waggle x " + proof, "Waggle -" + seconds + " " + proof, "Waggle " + seconds + "9 " + proof,
        "Basic " + proof, shown + "0", shown.substr(0, shown.size() - 2),
        "Waggle 99999999999999999999999 " + proof})
    EXPECT_FALSE(proves_page(run, "/", text, noon)) << text;
}

} // namespace
} // namespace waggle::net
