#include "runtime/net/page_proof.hpp"

#include <gtest/gtest.h>

namespace waggle::net {
namespace {

const page_of_channel page{std::string(32, 'b'), "/api/v1/status"};
const page_of_channel other_page{page.binding, "/api/v1/peers"};
const page_of_channel other_channel{std::string(32, 'c'), page.target};

TEST(PageProof, IsGoodForOnePageOfOneRunOnOneConnection) {
  run_secret run{make_swarm_key()};
  run_secret other{make_swarm_key()};
  auto asked = page_proof(run, page);
  EXPECT_TRUE(proves_page(run, page, asked));
  EXPECT_FALSE(proves_page(run, other_page, asked));
  EXPECT_FALSE(proves_page(run, other_channel, asked)) << "somebody stands in between";
  EXPECT_FALSE(proves_page(other, page, asked));
  auto answer = answer_proof(run, page);
  EXPECT_TRUE(proves_answer(run, page, answer));
  EXPECT_FALSE(proves_answer(run, other_page, answer));
  EXPECT_FALSE(proves_answer(run, other_channel, answer));
  EXPECT_FALSE(proves_answer(other, page, answer));
  EXPECT_FALSE(proves_answer(run, page, asked)) << "a request that is sent back";
}

TEST(PageProof, AnythingElseProvesNothing) {
  run_secret run{make_swarm_key()};
  auto shown = page_proof(run, page);
  auto proof = shown.substr(shown.rfind(' ') + 1);
  for (const auto& text : {std::string{}, std::string{"Waggle "}, "Waggle  " + proof,
                           "Basic " + proof, shown + "0", shown.substr(0, shown.size() - 2)}) {
    EXPECT_FALSE(proves_page(run, page, text)) << text;
    EXPECT_FALSE(proves_answer(run, page, text)) << text;
  }
}

} // namespace
} // namespace waggle::net
