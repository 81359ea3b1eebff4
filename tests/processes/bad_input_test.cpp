// Invalid input from the network is refused with a reason in /metrics, and the process survives.

#include <cstring>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include "tests/processes/peer.hpp"

namespace waggle::testing {
namespace {

/// A plain socket to a peer's port.
class raw_connection {
public:
  explicit raw_connection(const endpoint& where) : socket_(::socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(where.port);
    inet_pton(AF_INET, where.host.c_str(), &address.sin_addr);
    timeval patience{10, 0};
    setsockopt(socket_, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    EXPECT_EQ(::connect(socket_, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  }
  ~raw_connection() { ::close(socket_); }
  raw_connection(const raw_connection&) = delete;
  raw_connection& operator=(const raw_connection&) = delete;

  void send(std::string_view bytes) const {
    // The peer may close the connection before everything is sent; that is a valid refusal.
    auto sent = ::send(socket_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    (void)sent;
  }
  /// Reads until the peer closes the connection.
  [[nodiscard]] std::string read_all() const {
    std::string all;
    char buffer[4096];
    for (ssize_t n = 0; (n = ::recv(socket_, buffer, sizeof buffer, 0)) > 0;)
      all.append(buffer, static_cast<std::size_t>(n));
    return all;
  }
  /// Reads up to the end of the first HTTP header.
  [[nodiscard]] std::string read_header() const {
    std::string all;
    char c = 0;
    while (all.find("\r\n\r\n") == std::string::npos && ::recv(socket_, &c, 1, 0) == 1)
      all += c;
    return all;
  }

private:
  int socket_;
};

constexpr const char* upgrade =
  "GET / HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: waggle/1\r\n\r\n";

class BadInput : public ::testing::Test {
protected:
  void SetUp() override { where = node.await_address(); }
  void TearDown() override {
    EXPECT_TRUE(node.runs()) << node.log();
    auto health = net::http_get(where, "/healthz", 5s);
    ASSERT_TRUE(health.ok());
    EXPECT_EQ(health->status, 200U);
    node.signal(SIGTERM);
    EXPECT_EQ(node.await_exit(5s), 0) << node.log();
  }
  double refused(const std::string& reason) {
    return metric(where, "waggle_network_refused_total", "reason=\"" + reason + "\"");
  }

  scratch_folder folder;
  peer node{folder, "node", {"node", "--run-id", "right"}};
  endpoint where;
};

TEST_F(BadInput, GarbageInsteadOfHttp) {
  auto before = refused("malformed");
  raw_connection c{where};
  c.send(std::string("\x16\x03\x01\x02\x00\x01\x00\xfc\x03\x03", 10) + std::string(200, '\xee')
         + "\r\n\r\n");
  auto answer = c.read_all();
  EXPECT_TRUE(answer.empty() || answer.starts_with("HTTP/1.1 400")) << answer;
  EXPECT_TRUE(eventually([&] { return refused("malformed") > before; }, 10s));
}

TEST_F(BadInput, AHeaderWithoutEnd) {
  auto before = refused("oversize");
  raw_connection c{where};
  c.send("GET / HTTP/1.1\r\nX: " + std::string(64 * 1024, 'a'));
  auto answer = c.read_all();
  EXPECT_TRUE(answer.empty() || answer.starts_with("HTTP/1.1 431")) << answer;
  EXPECT_TRUE(eventually([&] { return refused("oversize") > before; }, 10s));
}

TEST_F(BadInput, UnknownPagesAndMethodsSayWhatThereIs) {
  auto missing = net::http_get(where, "/wp-login.php", 5s);
  ASSERT_TRUE(missing.ok());
  EXPECT_EQ(missing->status, 404U);
  EXPECT_NE(missing->body.find("/api/v1/status"), std::string::npos);
  raw_connection c{where};
  c.send("DELETE /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
  EXPECT_TRUE(c.read_all().starts_with("HTTP/1.1 405"));
}

TEST_F(BadInput, GarbageBehindTheUpgrade) {
  auto before = refused("malformed");
  raw_connection c{where};
  c.send(upgrade);
  EXPECT_TRUE(c.read_header().starts_with("HTTP/1.1 101"));
  c.send(std::string(4096, 'z'));
  (void)c.read_all();
  EXPECT_TRUE(eventually([&] { return refused("malformed") > before; }, 10s));
}

TEST_F(BadInput, AFrameThatClaimsTooMuch) {
  auto before = refused("oversize");
  raw_connection c{where};
  c.send(upgrade);
  (void)c.read_header();
  std::string prefix = "WGG1";
  prefix += std::string(4, '\0');               // kind, zeros
  prefix += std::string("\xff\xff\xff\x7f", 4); // a header of 2 GiB
  prefix += std::string("\xff\xff\xff\x7f", 4); // a body of 2 GiB
  c.send(prefix);
  (void)c.read_all();
  EXPECT_TRUE(eventually([&] { return refused("oversize") > before; }, 10s));
  EXPECT_LT(metric(where, "process_resident_memory_bytes"), 300e6);
}

TEST_F(BadInput, APeerOfAnotherRun) {
  peer stranger{
    folder, "stranger", {"node", "--run-id", "wrong", "--initial-peers", to_string(where)}};
  EXPECT_TRUE(eventually([&] { return refused("wrong_run") > 0; }, 10s));
  EXPECT_TRUE(
    eventually([&] { return stranger.log().find("wrong_run") != std::string::npos; }, 10s))
    << stranger.log();
}

} // namespace
} // namespace waggle::testing
