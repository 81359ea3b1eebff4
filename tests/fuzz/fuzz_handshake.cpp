#include <cstdint>
#include <cstdlib>

#include "runtime/net/handshake.hpp"

using namespace waggle;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const auto self = identity::from_seed(2);
  static const auto verifier = make_plain_verifier();
  std::string_view bytes{reinterpret_cast<const char*>(data), size};
  for (bool dialled : {false, true}) {
    net::handshake talk{
      {dialled, "demo", self, {self->id(), self->key(), {}, false}, verifier, {}, {}, {}}};
    for (int twice = 0; twice < 2; ++twice)
      if (talk.on_message(bytes).peer)
        std::abort(); // one message, sent twice, must not prove an identity
  }
  return 0;
}
