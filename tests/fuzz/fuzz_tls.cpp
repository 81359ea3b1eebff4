// The first bytes of a connection that begins with TLS, and what a dialler gets as an answer.

#include <cstdint>
#include <cstdlib>

#include "runtime/net/tls_channel.hpp"

using namespace waggle;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const auto self = identity::from_seed(1);
  static const net::tls_context context{*self, page_certificate::make()};
  byte_span bytes{reinterpret_cast<const std::byte*>(data), size};
  for (bool dialled : {false, true}) {
    net::tls_channel channel{context, dialled};
    if (dialled && channel.begin())
      (void)channel.take_output();
    channel.arrived(bytes.first(size / 2));
    auto ready = channel.begin();
    channel.arrived(bytes.subspan(size / 2));
    if (ready && !*ready)
      ready = channel.begin();
    if (!ready || !*ready)
      continue;
    if (dialled)
      std::abort(); // no input is signed by an acceptor that has seen our random value
    std::byte room[256];
    if (auto read = channel.read(room); read && *read > 0)
      std::abort(); // nor does one know our key share
  }
  return 0;
}
