#include <cstdint>
#include <cstdlib>

#include "runtime/net/handshake.hpp"

using namespace waggle;

namespace {

std::shared_ptr<const run_secret> secret() {
  static const auto run = std::make_shared<const run_secret>("demo");
  return run;
}

net::handshake::setup setup_of(std::uint64_t who, bool dialled) {
  static const auto verifier = make_plain_verifier();
  auto self = identity::from_seed(who);
  return {dialled, secret(), self, {self->id(), self->key(), {}, false}, verifier, {}, {}, {}};
}

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  std::string_view bytes{reinterpret_cast<const char*>(data), size};
  for (bool dialled : {false, true}) {
    net::handshake talk{setup_of(2, dialled)};
    for (int twice = 0; twice < 2; ++twice)
      if (talk.on_message(bytes).peer)
        std::abort(); // one message, sent twice, must not prove an identity
    net::handshake greeted{setup_of(2, dialled)};
    (void)greeted.on_message(net::handshake{setup_of(1, !dialled)}.hello());
    if (greeted.on_message(bytes).peer)
      std::abort(); // nor the same without knowing the acceptor's key
  }
  return 0;
}
