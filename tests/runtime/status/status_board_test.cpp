#include "runtime/status/status_board.hpp"

#include <gtest/gtest.h>

namespace waggle {
namespace {

TEST(StatusBoard, OnlyTheWholeNameOfAPageIsThatPage) {
  status_board board{
    std::make_shared<metric_families>(std::make_shared<prometheus::Registry>(), "r", "p")};
  board.show(status_board::document::status, "{\"status\":1}\n");
  auto status_of = [&](const std::string& page) { return board.answer({"GET", page}).status; };
  EXPECT_EQ(status_of("/api/v1/status"), 200U);
  EXPECT_EQ(status_of("/api/v1/status?pretty"), 200U);
  for (const auto* page :
       {"/metrics\",\"/healthz", "/api", "/healthz/", "", "/liv", ",", "/metrics\""})
    EXPECT_EQ(status_of(page), 404U) << page;
  EXPECT_NE(board.answer({"GET", "/nothing"}).body.find(R"("routes":["/metrics","/healthz",)"),
            std::string::npos);
}

} // namespace
} // namespace waggle
