// Untrusted bytes on a real port, one socket per input, so that the real code path is tested.

#include <cstdint>
#include <cstdlib>

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/read.hpp>
#include <boost/asio/write.hpp>

#include "runtime/net/tcp_transport.hpp"

using namespace waggle;

namespace {

struct listening_peer {
  listening_peer() {
    auto self = identity::from_seed(2);
    net::tcp_transport_config config;
    config.run_id = "demo";
    config.self = self;
    config.verifier = make_plain_verifier();
    config.record = {self->id(), self->key(), {}, false};
    config.http_timeout = config.handshake_timeout = milliseconds{50};
    wire = net::make_tcp_transport(std::move(config));
    where =
      wire->listen({{"127.0.0.1", 0}}, [](const std::shared_ptr<net::link>&) { std::abort(); })
        ->front();
  }
  ~listening_peer() { wire->stop(); }
  std::shared_ptr<net::transport> wire;
  endpoint where;
};

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static listening_peer peer;
  namespace asio = boost::asio;
  asio::io_context io;
  asio::ip::tcp::socket socket{io};
  socket.connect({asio::ip::address_v4::loopback(), peer.where.port});
  boost::system::error_code ignored;
  asio::write(socket, asio::buffer(data, size), ignored);
  socket.shutdown(asio::ip::tcp::socket::shutdown_send, ignored);
  std::string answer;
  asio::read(socket, asio::dynamic_buffer(answer), ignored); // until the peer closes
  return 0;
}
