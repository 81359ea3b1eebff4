// A pretended router. Nothing sleeps: a test waits for what the thread does, with a deadline that
// is only reached on failure.

#include "runtime/net/port_mapping.hpp"

#include <deque>
#include <future>

#include <gtest/gtest.h>

#include "tests/runtime/net/test_peers.hpp"

namespace waggle::net {

namespace {

struct pretended_router final : port_router {
  result<endpoint> map(std::uint16_t port, std::chrono::seconds lease) override {
    result<endpoint> answer = failure{ec::internal, {}};
    seen.note([&] {
      asked.push_back(port);
      leases.push_back(lease);
      answer = answers.size() > 1 ? answers.front() : answers.back();
      if (answers.size() > 1)
        answers.pop_front();
    });
    return answer;
  }
  void unmap(std::uint16_t port) override {
    seen.note([&] { unmapped.push_back(port); });
  }

  journal seen;
  std::deque<result<endpoint>> answers{endpoint{"198.51.100.7", 7700}}; // the last one again
  std::vector<std::uint16_t> asked, unmapped;
  std::vector<std::chrono::seconds> leases;
};

struct PortMapping : ::testing::Test {
  std::shared_ptr<pretended_router> router = std::make_shared<pretended_router>();
  port_mapping::options often{120s, 1ms, 1ms};
  journal heard;
  std::vector<result<endpoint>> told;

  port_mapping::on_mapped tell() {
    return [this](const result<endpoint>& where) { heard.note([&] { told.push_back(where); }); };
  }
};

} // namespace

TEST_F(PortMapping, AsksNobodyUntilAPortIsWanted) {
  { port_mapping ports{router, often}; }
  EXPECT_TRUE(router->asked.empty());
  EXPECT_TRUE(router->unmapped.empty());
}

TEST_F(PortMapping, RenewsAMappingSaysItOnceAndTakesItBackAtTheEnd) {
  {
    port_mapping ports{router, often};
    ports.want(7700, tell());
    ports.want(7701, tell()); // the first one counts
    ASSERT_TRUE(router->seen.wait([&] { return router->asked.size() >= 3; }));
  }
  ASSERT_EQ(told.size(), 1U);
  EXPECT_EQ(told[0].value(), (endpoint{"198.51.100.7", 7700}));
  EXPECT_EQ(router->asked.back(), 7700);
  EXPECT_EQ(router->leases[0], 120s);
  EXPECT_EQ(router->unmapped, std::vector<std::uint16_t>{7700});
}

TEST_F(PortMapping, ARouterThatDoesNotAnswerHoldsUpNoEnd) {
  struct silent_router final : port_router {
    result<endpoint> map(std::uint16_t, std::chrono::seconds) override {
      asked.note([&] { called = true; });
      answer.get_future().wait();
      return endpoint{"198.51.100.7", 7700};
    }
    void unmap(std::uint16_t) override {
      asked.note([&] { unmapped = true; });
    }
    journal asked;
    std::promise<void> answer;
    bool called = false, unmapped = false;
  };
  auto slow = std::make_shared<silent_router>();
  {
    port_mapping ports{slow, {120s, 1ms, 1ms, 1ms}};
    ports.want(7700, tell());
    ASSERT_TRUE(slow->asked.wait([&] { return slow->called; }));
  }
  slow->answer.set_value();
  EXPECT_TRUE(slow->asked.wait([&] { return slow->unmapped; })) << "it was mapped after all";
  EXPECT_TRUE(told.empty()) << "nobody is there any more";
}

TEST_F(PortMapping, ARouterThatIsStartedAgainMayMapAnotherPortOrNone) {
  router->answers = {endpoint{"198.51.100.7", 7700}, failure{ec::unreachable, "no router answers"},
                     failure{ec::unreachable, "no router answers"}, endpoint{"198.51.100.7", 7701},
                     failure{ec::unreachable, "it refuses"}};
  {
    port_mapping ports{router, often};
    ports.want(7700, tell());
    ASSERT_TRUE(heard.wait([&] { return told.size() == 4; }));
  }
  EXPECT_EQ(told[1].error().detail, "no router answers");
  EXPECT_EQ(told[2].value().port, 7701);
  EXPECT_EQ(told[3].error().detail, "it refuses");
  EXPECT_TRUE(router->unmapped.empty()) << "nothing is mapped";
}

} // namespace waggle::net
