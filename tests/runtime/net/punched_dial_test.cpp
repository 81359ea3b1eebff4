// What a dial through routers is made of, over real sockets on loopback: the port of a link that
// exists, again until the other end is there, and one end that answers although both dialled.
// tests/processes/reach/reach_routers.py has routers.

#include <array>
#include <random>
#include <thread>

#include <gtest/gtest.h>

#include "tests/runtime/net/test_peers.hpp"

namespace waggle::net {
namespace {

/// Two peers have connected to it, and each takes it for the other one.
class middle {
public:
  middle() : first_(io_, local()), second_(io_, local()) {}
  ~middle() {
    boost::system::error_code ignored;
    for (auto* each : {&one_, &other_})
      each->shutdown(tcp::socket::shutdown_both, ignored);
    for (auto& each : threads_)
      each.join();
  }

  [[nodiscard]] endpoint first() const { return where(first_); }
  [[nodiscard]] endpoint second() const { return where(second_); }
  void join() {
    one_ = first_.accept();
    other_ = second_.accept();
    threads_.emplace_back([this] { pass(one_, other_); });
    threads_.emplace_back([this] { pass(other_, one_); });
  }

private:
  static tcp::endpoint local() { return {asio::ip::address_v4::loopback(), 0}; }
  static endpoint where(const tcp::acceptor& at) {
    return {"127.0.0.1", at.local_endpoint().port()};
  }
  static void pass(tcp::socket& from, tcp::socket& to) {
    std::array<char, 4096> bytes{};
    boost::system::error_code error;
    while (!error) {
      auto n = from.read_some(asio::buffer(bytes), error);
      if (!error)
        asio::write(to, asio::buffer(bytes.data(), n), error);
    }
  }

  asio::io_context io_;
  tcp::acceptor first_, second_;
  tcp::socket one_{io_}, other_{io_};
  std::vector<std::thread> threads_;
};

} // namespace

/// Whether a link was made from that port, and then a second one.
static bool dials_twice_from(const endpoint& here) {
  peer ann{1};
  std::array<peer, 2> others{peer{2}, peer{3}};
  for (auto& other : others) {
    std::promise<bool> ended;
    ann.wire->dial({other.listen(), {}, other.id, here}, 20s,
                   [&](result<std::shared_ptr<net::link>> made) {
                     if (made.ok())
                       ann.adopt(*made);
                     ended.set_value(made.ok());
                   });
    if (!ended.get_future().get() || !other.seen.wait([&] { return other.links.size() == 1; }))
      return false;
    EXPECT_EQ(other.links[0]->ends().value().there, here);
    EXPECT_EQ(other.links[0]->remote().id, ann.id);
  }
  return true;
}

TEST(PunchedDial, ComesFromThePortOfALinkThatExists) {
  // Below the ports that a system gives to dials: those of other processes, also of closed
  // connections, would be in the way.
  random_source random{std::random_device{}()};
  bool came = false;
  for (int i = 0; i < 5 && !came; ++i)
    came =
      dials_twice_from({"127.0.0.1", static_cast<std::uint16_t>(10'000 + random.next() % 20'000)});
  EXPECT_TRUE(came);
}

TEST(PunchedDial, OfTwoThatDialOneAnswersAndBothHaveALink) {
  peer ann{1};
  peer bob{2};
  (void)ann.listen();
  middle between;
  std::promise<bool> answered;
  ann.wire->dial({between.first(), {}, bob.id, {}, true}, 20s,
                 [&](result<std::shared_ptr<net::link>> made) {
                   answered.set_value(made.ok() && *made == nullptr);
                 });
  std::promise<bool> linked;
  bob.wire->dial({between.second(), {}, ann.id}, 20s, [&](result<std::shared_ptr<net::link>> made) {
    if (made.ok())
      bob.adopt(*made);
    linked.set_value(made.ok());
  });
  between.join();
  EXPECT_TRUE(answered.get_future().get());
  EXPECT_TRUE(linked.get_future().get());
  ASSERT_TRUE(ann.seen.wait([&] { return ann.links.size() == 1; }));
  EXPECT_EQ(ann.links[0]->remote().id, bob.id);
  EXPECT_FALSE(ann.links[0]->outbound());
}

TEST(PunchedDial, TriesAgainUntilTheTimeIsOver) {
  peer ann{1};
  peer bob{2};
  auto gone = endpoint{"127.0.0.1", 1}; // nobody listens there
  auto from = endpoint{"127.0.0.1", 0};
  std::promise<ec> ended;
  ann.wire->dial({gone, {}, bob.id, from}, 300ms, [&](result<std::shared_ptr<net::link>> made) {
    ended.set_value(made.ok() ? ec::none : made.error().code);
  });
  EXPECT_EQ(ended.get_future().get(), ec::timeout) << "not when it is refused";
}

} // namespace waggle::net
