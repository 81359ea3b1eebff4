#include <gtest/gtest.h>

#include "runtime/status/live_page.hpp"
#include "runtime/watch/replay.hpp"
#include "tests/support/event_logs.hpp"

namespace waggle {
namespace {

using namespace event_logs;

TEST(ReplayPage, AnswersItsOwnMachineOnly) {
  log_writer log{1, 0};
  log.add(0, watch::started{"0.1", "red", "trainer"});
  auto all = of({log.text});
  ASSERT_TRUE(all.align().ok());
  auto from = std::make_shared<const recording>(std::move(all));
  auto answer = [&](const std::string& target, const std::string& method = "GET", bool local = true,
                    bool cross_origin = false) {
    net::http_request request{method, target};
    request.local = local;
    request.cross_origin = cross_origin;
    return replay_page(from, request);
  };
  auto stream = answer("/api/v1/events?at=0&speed=10");
  ASSERT_EQ(stream.status, 200U);
  EXPECT_NE(stream.stream(steady_time{}).find("event: snapshot\n"), std::string::npos);
  EXPECT_FALSE(answer("/api/v1/events", "HEAD").stream);
  EXPECT_EQ(answer("/").status, 200U);
  EXPECT_EQ(answer("/live/replay.js").status, 200U);
  EXPECT_EQ(answer("/", "GET", true, true).status, 200U) << "a link on another page";
  for (auto [status, reply] : {std::pair{403U, answer("/", "GET", false)},
                               {403U, answer("/api/v1/events", "GET", false)},
                               {403U, answer("/api/v1/events", "GET", true, true)},
                               {404U, answer("/api/v1/status")},
                               {404U, answer("/api/v1/events?peer=" + to_string(id_of(2)))},
                               {400U, answer("/api/v1/events?speed=x")},
                               {405U, answer("/", "POST")}})
    EXPECT_EQ(reply.status, status) << reply.body;
}

} // namespace
} // namespace waggle
