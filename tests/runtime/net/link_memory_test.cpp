#include "runtime/net/link_memory.hpp"

#include <gtest/gtest.h>

#include "runtime/crypto/digest.hpp"
#include "tests/runtime/net/test_peers.hpp"

namespace waggle::net {
namespace {

/// One end of a link, without the link.
struct memory_end {
  explicit memory_end(asio::io_context& io)
    : host(local_host::make(io, shared_arena::make())), memory(host, count()) {}

  std::shared_ptr<const net_events> count() {
    net_events events;
    events.shared = [this](bool outbound, std::size_t bytes) {
      (outbound ? lent : borrowed) += bytes;
    };
    events.shared_memory = [this](ec why) { states.push_back(why); };
    return std::make_shared<const net_events>(std::move(events));
  }
  std::string begin(bool dialler, bool same_host = true) {
    link_ends ends{peer_id{}, peer_id{}};
    ends.dialler.bytes[0] = std::byte{1};
    return memory.begin(same_host, {ends, dialler, owner, [this] { ++returned; }});
  }

  std::shared_ptr<int> owner = std::make_shared<int>();
  std::shared_ptr<local_host> host;
  std::size_t lent = 0, borrowed = 0;
  std::vector<ec> states;
  std::atomic<int> returned{0};
  link_memory memory;
};

struct LinkMemory : ::testing::Test {
  /// Runs what is due until `what` holds, at most for ten seconds.
  bool run_until(const std::function<bool()>& what) {
    auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds{10};
    while (!what() && std::chrono::steady_clock::now() < deadline)
      io.run_one_for(std::chrono::milliseconds{100});
    return what();
  }
  void share() {
    EXPECT_EQ(dialler.begin(true), "") << "the acceptor offers";
    ASSERT_TRUE(dialler.memory.on_offer(acceptor.begin(false)));
    ASSERT_TRUE(run_until([this] { return dialler.states.size() + acceptor.states.size() == 2; }));
    EXPECT_EQ(dialler.states.front(), ec::none);
    EXPECT_EQ(acceptor.states.front(), ec::none);
  }
  /// What the dialler writes instead of a body.
  outgoing refer(const payload& body) {
    outgoing out{.content = {"message", body}};
    dialler.memory.refer(out);
    return out;
  }

  asio::io_context io;
  memory_end dialler{io};
  memory_end acceptor{io};
  receive_window window{4_MiB};
};

TEST_F(LinkMemory, ABodyIsLentAndComesBack) {
  share();
  EXPECT_TRUE(dialler.memory.opened() && acceptor.memory.opened());
  auto body = body_of(1_MiB, 7);
  auto out = refer(body);
  EXPECT_EQ(out.lent, 1_MiB);
  EXPECT_TRUE(out.content.body.empty());
  auto header = out.content.header;
  {
    auto found = acceptor.memory.resolve(header, window);
    EXPECT_EQ(header, "message");
    EXPECT_EQ(sha256(found->view()), sha256(body.view()));
  }
  EXPECT_EQ(acceptor.returned, 1);
  EXPECT_EQ(dialler.lent, 1_MiB);
  EXPECT_EQ(acceptor.borrowed, 1_MiB);
  EXPECT_EQ(acceptor.memory.bytes(), 1_MiB);
  write_queue queue{{}};
  acceptor.memory.write_releases(queue);
  std::vector<outgoing> batch;
  queue.next(batch, true, [](outgoing&) {});
  ASSERT_EQ(batch.size(), 1U);
  EXPECT_TRUE(dialler.memory.on_release(batch.front().content.header));
}

TEST_F(LinkMemory, SmallBodiesStayInTheirFrames) {
  share();
  EXPECT_EQ(refer(body_of(64_KiB, 1)).lent, 0U);
}

TEST_F(LinkMemory, NothingIsOfferedToAnotherHost) {
  EXPECT_EQ(acceptor.begin(false, false), "");
}

TEST_F(LinkMemory, AnOfferIsAViolationWhereNoneIsExpected) {
  auto offer = acceptor.begin(false);
  EXPECT_EQ(acceptor.memory.on_offer(offer).error().code, ec::protocol_violation) << "by a dialler";
  EXPECT_EQ(dialler.begin(true, false), "");
  EXPECT_EQ(dialler.memory.on_offer(offer).error().code, ec::protocol_violation) << "another host";
}

TEST_F(LinkMemory, ASecondOfferIsAViolationAlsoAfterOneThatFailed) {
  dialler.begin(true);
  EXPECT_TRUE(dialler.memory.on_offer("not an offer"));
  EXPECT_EQ(dialler.states, std::vector{ec::malformed});
  EXPECT_EQ(dialler.memory.on_offer(acceptor.begin(false)).error().code, ec::protocol_violation);
}

TEST_F(LinkMemory, WithoutSharedMemoryNothingCanBeLentOrReturned) {
  dialler.begin(true);
  EXPECT_EQ(refer(body_of(1_MiB, 7)).lent, 0U);
  std::string header(memory_reference::size, '\0');
  EXPECT_EQ(dialler.memory.resolve(header, window).error().code, ec::protocol_violation);
  EXPECT_EQ(dialler.memory.on_release(header).error().code, ec::protocol_violation);
}

TEST_F(LinkMemory, AReferenceTakesItsRoomInTheWindow) {
  share();
  receive_window narrow{1_MiB};
  auto body = body_of(600_KiB, 7);
  auto first = refer(body).content.header;
  EXPECT_TRUE(acceptor.memory.resolve(first, narrow));
  auto second = refer(body).content.header;
  EXPECT_EQ(acceptor.memory.resolve(second, narrow).error().code, ec::protocol_violation);
}

TEST_F(LinkMemory, TheOfferOfALinkThatHasEndedIsNotAnswered) {
  dialler.begin(true);
  auto offer = acceptor.begin(false);
  acceptor.memory.end();
  EXPECT_TRUE(dialler.memory.on_offer(offer)) << "the socket still accepts";
  EXPECT_TRUE(run_until([this] { return !dialler.states.empty(); }));
  EXPECT_NE(dialler.states.front(), ec::none);
  EXPECT_FALSE(acceptor.memory.opened());
}

TEST_F(LinkMemory, NothingIsLentAfterTheEnd) {
  share();
  dialler.memory.end();
  EXPECT_EQ(refer(body_of(1_MiB, 7)).lent, 0U);
}

} // namespace
} // namespace waggle::net
