#pragma once

// Peers over real sockets on loopback, port 0, and a raw socket for invalid input.

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <future>
#include <mutex>

#include <boost/asio/connect.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/read.hpp>
#include <boost/asio/read_until.hpp>
#include <boost/asio/write.hpp>
#include <gtest/gtest.h>

#include "runtime/net/framing.hpp"
#include "runtime/net/tcp_transport.hpp"
#include "tests/support/link_events.hpp"

namespace waggle::net {

namespace asio = boost::asio;
using tcp = asio::ip::tcp;

/// Lets the test's thread wait for what callbacks on the I/O thread recorded.
class journal {
public:
  template <class F>
  void note(F change) {
    std::lock_guard lock{mutex_};
    change();
    changed_.notify_all();
  }
  template <class F>
  [[nodiscard]] bool wait(F until) {
    std::unique_lock lock{mutex_};
    return changed_.wait_for(lock, 30s, until);
  }

private:
  std::mutex mutex_;
  std::condition_variable changed_;
};

struct peer {
  explicit peer(std::uint64_t seed, std::string run = "demo",
                std::function<void(tcp_transport_config&)> adjust = {}) {
    auto self = identity::from_seed(seed);
    tcp_transport_config config;
    config.run_id = std::move(run);
    config.self = self;
    config.verifier = make_plain_verifier();
    config.record = {self->id(), self->key(), {{"0.0.0.0", 7700}}, false};
    config.http = [](const http_request& request) {
      return http_response{200, "text/plain", request.method + " " + request.target};
    };
    config.events.refused = [this](ec code) { seen.note([&] { refused.push_back(code); }); };
    config.events.shared_memory = [this](ec code) { seen.note([&] { paths.push_back(code); }); };
    config.events.shared = [this](bool outbound, std::size_t bytes) {
      seen.note([&] { (outbound ? shared_out : shared_in) += bytes; });
    };
    config.events.transferred = [this](bool outbound, bool, std::size_t bytes) {
      if (outbound)
        wire_out += bytes;
    };
    if (adjust)
      adjust(config);
    id = self->id();
    wire = make_tcp_transport(std::move(config));
  }
  ~peer() { wire->stop(); }

  endpoint listen() {
    auto bound =
      wire->listen({{"127.0.0.1", 0}}, [this](std::shared_ptr<link> l) { adopt(std::move(l)); });
    EXPECT_TRUE(bound.ok());
    return bound->front();
  }
  void adopt(std::shared_ptr<link> l) {
    auto events = std::make_shared<link_events>();
    events->frame_arrived = [this, weak = std::weak_ptr<link>{l}](frame f) {
      if (auto from = weak.lock(); from && granting)
        from->grant(f.body.size);
      seen.note([&] {
        body_bytes += f.body.size;
        frames.push_back(std::move(f));
      });
    };
    events->closed = [this](failure why) { seen.note([&] { closed.push_back(std::move(why)); }); };
    events->place = body_memory;
    events->overhead = [this](std::size_t count, std::size_t header_bytes) {
      seen.note([&] {
        overhead_frames += count;
        overhead_bytes += header_bytes;
      });
      if (overheard)
        overheard();
    };
    events->shares = [this](const std::string&, std::size_t) { return zero_copy_ok.load(); };
    l->start(std::move(events));
    seen.note([&] { links.push_back(std::move(l)); });
  }
  result<std::shared_ptr<link>> dial(const endpoint& where, const peer_id& expected = {},
                                     milliseconds timeout = 20s) {
    std::promise<result<std::shared_ptr<link>>> answer;
    auto future = answer.get_future();
    wire->dial({where, {}, expected}, timeout, [&](result<std::shared_ptr<link>> outcome) {
      if (outcome.ok())
        adopt(*outcome);
      answer.set_value(std::move(outcome));
    });
    return future.get();
  }
  bool waits_for_path(ec said = ec::none) {
    return seen.wait([&] { return std::find(paths.begin(), paths.end(), said) != paths.end(); });
  }
  bool waits_for_refusal(ec code) {
    return seen.wait(
      [&] { return std::find(refused.begin(), refused.end(), code) != refused.end(); });
  }

  peer_id id;
  journal seen;
  std::vector<std::shared_ptr<link>> links;
  std::vector<frame> frames;
  std::vector<failure> closed;
  std::vector<ec> refused;
  std::vector<ec> paths; // outcomes of sharing memory
  std::size_t body_bytes = 0;
  std::size_t overhead_frames = 0;
  std::size_t overhead_bytes = 0; // of their headers
  std::function<void()> overheard;
  std::size_t shared_out = 0;
  std::size_t shared_in = 0;
  std::atomic<std::size_t> wire_out{0};
  std::atomic<bool> granting{true};
  std::atomic<bool> zero_copy_ok{false};
  std::function<std::shared_ptr<std::byte>(const std::string&, std::size_t)> body_memory;
  std::shared_ptr<transport> wire;
};

/// A raw socket that can write arbitrary bytes.
struct raw_client {
  explicit raw_client(const endpoint& where) {
    asio::connect(socket, tcp::resolver{io}.resolve(where.host, std::to_string(where.port)));
  }
  void write(std::string_view text) {
    boost::system::error_code ignored;
    asio::write(socket, asio::buffer(text.data(), text.size()), ignored);
  }
  void write(std::span<const std::byte> bytes) { write(as_string_view(bytes)); }
  std::string read_all() {
    std::string out;
    boost::system::error_code end;
    asio::read(socket, asio::dynamic_buffer(out), end);
    return out;
  }
  /// Performs the HTTP upgrade; the other side's hello frame is not read yet.
  void upgrade() {
    write("GET /peer HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: waggle/1\r\n\r\n");
    std::string out;
    while (out.find("\r\n\r\n") == std::string::npos) {
      char c = 0;
      asio::read(socket, asio::buffer(&c, 1));
      out.push_back(c);
    }
    EXPECT_EQ(out.substr(0, 12), "HTTP/1.1 101");
  }
  asio::io_context io;
  tcp::socket socket{io};
};

inline payload body_of(std::size_t size, std::uint64_t seed) {
  auto bytes = std::make_shared<std::vector<std::byte>>(size);
  random_source{seed}.fill(*bytes);
  return payload_of(std::shared_ptr<const std::vector<std::byte>>{bytes});
}

} // namespace waggle::net
