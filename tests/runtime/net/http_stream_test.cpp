#include <array>
#include <atomic>

#include <boost/asio/read_until.hpp>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/net/gzip.hpp"
#include "runtime/net/http_front.hpp"
#include "tests/runtime/net/test_peers.hpp"

namespace waggle::net {
namespace {

using testing::HasSubstr, testing::Not, testing::StartsWith;

/// Serves a stream that counts, under /api/v1/events.
struct HttpStream : testing::Test {
  HttpStream() {
    http_settings settings;
    settings.handler = [this](const http_request& request) {
      http_response reply{200, "text/event-stream", {}, {}};
      if (request.cross_origin)
        return http_response{403, "text/plain", "cross", {}};
      if (request.target != "/api/v1/events")
        return http_response{200, "text/plain", "page", {}};
      reply.stream = [this, id = request.last_event_id, n = 0](steady_time) mutable {
        ++asked;
        if (n == exhausts)
          budget->owe(work{1h});
        return n == items ? std::string{}
                          : id + "#" + std::to_string(n++) + std::string(padding, ' ') + "\n";
      };
      return reply;
    };
    settings.events = std::make_shared<net_events>();
    settings.answering = budget;
    front = std::make_unique<http_front>(std::move(settings), connection_slots::limits{64, 64});
    auto bound = front->listen({{"127.0.0.1", 0}}, {});
    EXPECT_TRUE(bound.ok());
    where = bound->front();
  }

  static std::string request(const std::string& headers = "") {
    return "GET /api/v1/events HTTP/1.1\r\nHost: 127.0.0.1\r\n" + headers + "\r\n";
  }
  /// What arrives until `end` is part of it.
  static std::string read_until(raw_client& client, const std::string& end) {
    std::string out;
    boost::system::error_code error;
    asio::read_until(client.socket, asio::dynamic_buffer(out), end, error);
    return out;
  }

  std::atomic<int> items{2};
  std::atomic<int> asked{0};
  std::atomic<std::size_t> padding{0};
  std::atomic<int> exhausts{-1}; // the item that uses up the budget
  std::shared_ptr<work_bucket> budget = std::make_shared<work_bucket>(work{1s});
  endpoint where;
  std::unique_ptr<http_front> front; // last: its thread uses the others
};

TEST_F(HttpStream, SendsWhatThereIsAndGoesOn) {
  raw_client client{where};
  client.write(request("Last-Event-ID: x-7\r\n"));
  auto text = read_until(client, "x-7#1\n");
  EXPECT_THAT(text, StartsWith("HTTP/1.1 200"));
  EXPECT_THAT(text, HasSubstr("Content-Type: text/event-stream"));
  EXPECT_THAT(text, HasSubstr("Cache-Control: no-store"));
  EXPECT_THAT(text, Not(HasSubstr("Content-Length")));
  EXPECT_THAT(text, HasSubstr("\r\n\r\nx-7#0\n"));
  items = 3;
  EXPECT_THAT(read_until(client, "x-7#2\n"), HasSubstr("x-7#2\n"));
}

TEST_F(HttpStream, IsCompressedForWhoeverDecompresses) {
  padding = 30'000;
  raw_client client{where};
  client.write(request("Accept-Encoding: gzip, deflate, br\r\n"));
  auto head = read_until(client, "\r\n\r\n");
  auto body = head.substr(head.find("\r\n\r\n") + 4);
  EXPECT_THAT(head, HasSubstr("Content-Encoding: gzip\r\n"));
  EXPECT_THAT(head, HasSubstr("Vary: Accept-Encoding\r\n"));
  auto arrives = [&](const std::string& what) {
    std::string text;
    while (text.find(what) == std::string::npos) {
      std::array<char, 4'096> more{};
      body.append(more.data(), client.socket.read_some(asio::buffer(more)));
      text = gunzip({reinterpret_cast<const unsigned char*>(body.data()), body.size()});
    }
  };
  arrives("#1" + std::string(padding, ' ') + "\n");
  EXPECT_LT(body.size(), 1'000U);
  items = 3;
  arrives("#2" + std::string(padding, ' ') + "\n");
}

TEST_F(HttpStream, PagesOfOtherOriginsGetNone) {
  for (const auto* header : {"Sec-Fetch-Site: cross-site\r\n", "Sec-Fetch-Site: same-site\r\n",
                             "Origin: http://evil.example\r\n", "Origin: null\r\n"}) {
    raw_client client{where};
    client.write(request(header));
    EXPECT_THAT(read_until(client, "cross"), StartsWith("HTTP/1.1 403")) << header;
  }
  for (const auto* header : {"Sec-Fetch-Site: same-origin\r\n", "Sec-Fetch-Site: none\r\n",
                             "Origin: http://127.0.0.1\r\n"}) {
    raw_client client{where};
    client.write(request(header));
    EXPECT_THAT(read_until(client, "#1\n"), StartsWith("HTTP/1.1 200")) << header;
  }
}

TEST_F(HttpStream, AHostHasAShareAndAPlaceIsFreeAgainWhenOneEnds) {
  std::vector<std::unique_ptr<raw_client>> open;
  for (std::size_t i = 0; i < stream_slots::own_max; ++i) {
    open.push_back(std::make_unique<raw_client>(where));
    open.back()->write(request());
    EXPECT_THAT(read_until(*open.back(), "#1\n"), StartsWith("HTTP/1.1 200"));
  }
  raw_client next{where};
  next.write(request());
  EXPECT_THAT(read_until(next, "later"), StartsWith("HTTP/1.1 429"));
  open.pop_back(); // the peer sees it though it has nothing to send
  std::string answer;
  for (auto end = std::chrono::steady_clock::now() + 20s;
       !answer.starts_with("HTTP/1.1 200") && std::chrono::steady_clock::now() < end;) {
    raw_client again{where};
    again.write(request("Connection: close\r\n"));
    answer = read_until(again, "\r\n\r\n");
  }
  EXPECT_THAT(answer, StartsWith("HTTP/1.1 200"));
}

TEST_F(HttpStream, AClientThatDoesNotReadDelaysNobody) {
  padding = 16_MiB; // more than the kernel takes
  raw_client idle{where};
  idle.write(request());
  (void)read_until(idle, "\r\n\r\n");
  raw_client page{where};
  page.write("GET /x HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n");
  EXPECT_THAT(page.read_all(), HasSubstr("page"));
  EXPECT_LE(asked, 1) << "its first piece is still under way";
}

/// Streams and pages cost the peer, together, no more than its budget.
TEST_F(HttpStream, AsksForNothingWhileTheBudgetOfAnswersIsUsedUp) {
  exhausts = 1;
  items = 1000;
  raw_client client{where};
  client.write(request());
  EXPECT_THAT(read_until(client, "#1\n"), HasSubstr("#1\n"));
  int answered = 0; // health is not part of the budget; meanwhile three frames would be due
  for (auto end = std::chrono::steady_clock::now() + 400ms; std::chrono::steady_clock::now() < end;
       ++answered) {
    raw_client health{where};
    health.write("GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n");
    EXPECT_THAT(health.read_all(), HasSubstr("page"));
  }
  EXPECT_GT(answered, 0);
  EXPECT_EQ(asked, 2);
}

TEST_F(HttpStream, EndsWithThePeer) {
  raw_client client{where};
  client.write(request());
  (void)read_until(client, "#1\n");
  front.reset();
  EXPECT_EQ(client.read_all(), "");
}

} // namespace
} // namespace waggle::net
