// Names whose lookup hangs, and concurrent work. Nothing sleeps: lookups hang until the test
// releases them.

#include "runtime/net/name_resolver.hpp"

#include <algorithm>
#include <future>
#include <set>

#include <boost/asio/executor_work_guard.hpp>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/runtime/net/test_peers.hpp"

namespace waggle::net {
namespace {

using testing::HasSubstr;

/// A resolver that knows "here" and hangs for every other name.
class hanging_names {
public:
  hanging_names() : state_(std::make_shared<state>()) {}
  ~hanging_names() { let_go(); }

  [[nodiscard]] host_lookup lookup() const {
    return [state = state_](const std::string& host) -> result<host_addresses> {
      state->seen.note([&] {
        state->asked.insert(host);
        ++state->running;
      });
      if (host != "here")
        state->released.wait();
      state->seen.note([&] { --state->running; });
      if (host == "here")
        return host_addresses{asio::ip::address_v4::loopback()};
      return failure{ec::unreachable, "nobody knows '" + host + "'"};
    };
  }
  /// True once exactly `hosts` were looked up.
  [[nodiscard]] bool waits_for(const std::multiset<std::string>& hosts) const {
    return state_->seen.wait([&] { return state_->asked == hosts; });
  }
  [[nodiscard]] bool waits_until_none_runs() const {
    return state_->seen.wait([&] { return state_->running == 0; });
  }
  void let_go() {
    if (!std::exchange(went_, true))
      state_->release.set_value();
  }

private:
  struct state {
    journal seen;
    std::multiset<std::string> asked;
    int running = 0;
    std::promise<void> release;
    std::shared_future<void> released{release.get_future()};
  };
  std::shared_ptr<state> state_;
  bool went_ = false;
};

// -- the resolver alone --------------------------------------------------------------------------

struct NameResolver : testing::Test {
  name_resolver::on_resolved note(const std::string& as) {
    return [this, as](const result<host_addresses>& found) {
      outcomes.push_back(as + ": " + (found.ok() ? "found" : to_string(found.error())));
    };
  }
  /// Runs the posted handlers until `count` callbacks were called.
  void run_until(std::size_t count) {
    auto until = std::chrono::steady_clock::now() + 30s;
    while (outcomes.size() < count && std::chrono::steady_clock::now() < until)
      io.run_one_for(100ms);
    EXPECT_EQ(outcomes.size(), count);
  }

  hanging_names names;
  asio::io_context io;
  asio::executor_work_guard<asio::io_context::executor_type> work{io.get_executor()};
  std::vector<std::string> outcomes;
};

TEST_F(NameResolver, ANameThatHangsDelaysNoOther) {
  name_resolver resolver{io, names.lookup()};
  resolver.resolve("dead", 60s, note("dead"));
  ASSERT_TRUE(names.waits_for({"dead"}));
  resolver.resolve("here", 60s, note("here"));
  run_until(1);
  EXPECT_THAT(outcomes, testing::ElementsAre("here: found"));
  names.let_go();
  run_until(2);
  EXPECT_EQ(outcomes.back(), "dead: nobody knows 'dead'");
}

TEST_F(NameResolver, ASecondRequestForANameWaitsForTheSameLookup) {
  name_resolver resolver{io, names.lookup()};
  for (auto as : {"first", "second", "third"})
    resolver.resolve("dead", 60s, note(as));
  resolver.resolve("other", 60s, note("other"));
  ASSERT_TRUE(names.waits_for({"dead", "other"}));
  names.let_go();
  run_until(4);
}

TEST_F(NameResolver, TooManyNamesAtOnceAreRefusedAndKnownOnesAreNot) {
  name_resolver resolver{io, names.lookup(), 2};
  resolver.resolve("one", 60s, note("one"));
  resolver.resolve("two", 60s, note("two"));
  resolver.resolve("here", 60s, note("here"));
  resolver.resolve("one", 60s, note("one again"));
  run_until(1);
  EXPECT_THAT(outcomes[0], HasSubstr("here: the name 'here' has to wait: 2 others"));
  names.let_go();
  run_until(4);
  resolver.resolve("here", 60s, note("here"));
  run_until(5);
  EXPECT_EQ(outcomes.back(), "here: found") << "there is room again";
}

TEST_F(NameResolver, ARequestWhoseTimeIsUpFailsAndIsNotCalledAgain) {
  name_resolver resolver{io, names.lookup()};
  resolver.resolve("dead", 1ms, note("impatient"));
  resolver.resolve("dead", 60s, note("waits"));
  run_until(1);
  EXPECT_EQ(outcomes[0], "impatient: the name 'dead' was not resolved within 1 ms");
  names.let_go();
  run_until(2);
  EXPECT_THAT(outcomes[1], HasSubstr("waits: "));
  io.poll();
  EXPECT_EQ(outcomes.size(), 2U);
}

TEST_F(NameResolver, AfterItsEndNoCallbackIsCalled) {
  {
    name_resolver resolver{io, names.lookup()};
    resolver.resolve("dead", 60s, note("dead"));
    ASSERT_TRUE(names.waits_for({"dead"}));
  }
  names.let_go();
  ASSERT_TRUE(names.waits_until_none_runs());
  io.poll();
  EXPECT_TRUE(outcomes.empty());
}

TEST_F(NameResolver, WhatALookupThrowsIsAFailure) {
  name_resolver resolver{io, [](const std::string&) -> result<host_addresses> {
                           throw std::runtime_error{"out of memory"};
                         }};
  resolver.resolve("any", 60s, note("any"));
  run_until(1);
  EXPECT_EQ(outcomes[0], "any: out of memory");
}

TEST_F(NameResolver, TheSystemKnowsLocalhostAndNotAnInvalidName) {
  auto found = system_lookup()("localhost");
  EXPECT_TRUE(std::all_of(found->begin(), found->end(), [](auto a) { return a.is_loopback(); }));
  auto never = system_lookup()("two..dots");
  EXPECT_EQ(never.error().code, ec::unreachable);
  EXPECT_THAT(never.error().detail, HasSubstr("the name 'two..dots' is not found"));
}

// -- in which order addresses are dialled --------------------------------------------------------

host_addresses numbers(const std::vector<std::string>& all) {
  host_addresses out;
  for (const auto& each : all)
    out.push_back(asio::ip::make_address(each));
  return out;
}

TEST(DiallingOrder, TakesTheFamiliesInTurnAndBeginsWithThePreferredOne) {
  auto found = numbers({"::1", "::2", "::3", "1.0.0.1", "1.0.0.2"});
  EXPECT_EQ(in_dialling_order(found, 16), numbers({"::1", "1.0.0.1", "::2", "1.0.0.2", "::3"}));
  EXPECT_EQ(in_dialling_order(numbers({"1.0.0.1", "::1"}), 16), numbers({"1.0.0.1", "::1"}));
}

TEST(DiallingOrder, TakesEachAddressOnceAndNoMoreThanAsked) {
  auto found = numbers({"1.0.0.1", "1.0.0.1", "1.0.0.2", "::1", "1.0.0.3"});
  EXPECT_EQ(in_dialling_order(found, 3), numbers({"1.0.0.1", "::1", "1.0.0.2"}));
  EXPECT_TRUE(in_dialling_order({}, 3).empty());
}

// -- peers that resolve names --------------------------------------------------------------------

struct ResolvingNames : testing::Test {
  /// Begins to resolve; the outcome arrives later.
  static std::future<result<std::vector<endpoint>>>
  resolve_later(const peer& from, const endpoint& given, milliseconds timeout = 60s) {
    auto answer = std::make_shared<std::promise<result<std::vector<endpoint>>>>();
    from.wire->resolve(given, timeout, [answer](result<std::vector<endpoint>> outcome) {
      answer->set_value(std::move(outcome));
    });
    return answer->get_future();
  }

  hanging_names names;
  peer ann{1, "demo", [this](tcp_transport_config& c) { c.lookup = names.lookup(); }};
  peer bob{2};
};

TEST_F(ResolvingNames, NumbersAndOtherNamesAreFoundWhileANameHangs) {
  auto where = bob.listen();
  auto dead = resolve_later(ann, {"dead", where.port});
  ASSERT_TRUE(names.waits_for({"dead"}));
  EXPECT_EQ(*resolve_later(ann, where).get(), std::vector{where});
  EXPECT_EQ(*resolve_later(ann, {"here", where.port}).get(), std::vector{where});
  EXPECT_EQ(dead.wait_for(0s), std::future_status::timeout);
  names.let_go();
  EXPECT_EQ(dead.get().error().code, ec::unreachable);
}

TEST_F(ResolvingNames, NumbersAreNotLookedUp) {
  auto where = bob.listen();
  EXPECT_TRUE(ann.dial({"127.0.0.1", where.port}).ok());
  EXPECT_TRUE(ann.dial({"::ffff:127.0.0.1", where.port}).ok());
  endpoint mapped{"::ffff:127.0.0.1", where.port};
  EXPECT_EQ(*resolve_later(ann, mapped).get(), std::vector{mapped});
  EXPECT_TRUE(names.waits_for({}));
}

TEST_F(ResolvingNames, ANameItselfIsNotDialled) {
  EXPECT_EQ(ann.dial({"here", 1}).error().code, ec::unreachable);
  EXPECT_TRUE(names.waits_for({}));
}

TEST_F(ResolvingNames, TheDeadlineHoldsWhateverTheLookupDoesAndTheReasonNamesIt) {
  auto outcome = resolve_later(ann, {"dead", 1}, 50ms).get();
  EXPECT_EQ(outcome.error().code, ec::timeout);
  EXPECT_THAT(outcome.error().detail, HasSubstr("the name 'dead' was not resolved within 50 ms"));
}

TEST_F(ResolvingNames, StoppingDoesNotWaitForALookup) {
  auto dead = resolve_later(ann, {"dead", 1});
  ASSERT_TRUE(names.waits_for({"dead"}));
  ann.wire->stop(); // would never return
  names.let_go();
  EXPECT_TRUE(names.waits_until_none_runs());
  EXPECT_THROW((void)dead.get(), std::future_error) << "nobody is called after the end";
}

} // namespace
} // namespace waggle::net
