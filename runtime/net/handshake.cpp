#include "runtime/net/handshake.hpp"

#include "handshake.pb.h"

namespace waggle::net {

namespace {

void append_text(std::string& out, std::string_view text) {
  for (int i = 0; i < 4; ++i)
    out.push_back(static_cast<char>((text.size() >> (8 * i)) & 0xffU));
  out.append(text);
}

constexpr std::size_t run_id_bytes_max = 256;

std::string denial(ec code, std::string_view detail) {
  proto::HandshakeMessage message;
  message.mutable_denial()->set_code(static_cast<std::uint32_t>(code));
  message.mutable_denial()->set_detail(std::string{detail.substr(0, 512)});
  return message.SerializeAsString();
}

std::optional<peer_record> read_claim(const proto::Hello& hello) {
  auto key = public_key::from_raw(hello.key());
  if (!key || static_cast<std::size_t>(hello.addresses_size()) > addresses_max)
    return std::nullopt;
  peer_record peer{peer_id_of(*key), *key, {}, hello.client_mode()};
  for (const auto& address : hello.addresses()) {
    if (address.host().size() > host_bytes_max || address.port() == 0 || address.port() > 65535)
      return std::nullopt;
    peer.addresses.push_back({address.host(), static_cast<std::uint16_t>(address.port())});
  }
  return peer;
}

} // namespace

handshake::handshake(setup with) : with_(std::move(with)) {}

std::string handshake::hello() const {
  proto::HandshakeMessage message;
  auto& hello = *message.mutable_hello();
  hello.set_version(protocol_version);
  hello.set_run_id(with_.run_id);
  hello.set_key(std::string{with_.self->key().raw()});
  hello.set_nonce(std::string{with_.nonce.raw()});
  hello.set_client_mode(with_.record.client_mode);
  hello.set_host(with_.host);
  for (const auto& address : with_.record.addresses) {
    auto& to = *hello.add_addresses();
    to.set_host(address.host);
    to.set_port(address.port);
  }
  return message.SerializeAsString();
}

std::string handshake::proof_text(bool by_dialler) const {
  auto own_key = with_.self->key().raw();
  auto own_nonce = with_.nonce.raw();
  auto peer_key = peer_->key.raw();
  auto peer_nonce = peer_nonce_.raw();
  std::string text = "waggle/handshake/1";
  append_text(text, by_dialler ? "dialler" : "acceptor");
  append_text(text, with_.run_id);
  append_text(text, with_.dialled ? own_key : peer_key);
  append_text(text, with_.dialled ? peer_key : own_key);
  append_text(text, with_.dialled ? own_nonce : peer_nonce);
  append_text(text, with_.dialled ? peer_nonce : own_nonce);
  return text;
}

handshake::step handshake::refuse(ec code, std::string detail) const {
  return {{denial(code, detail)}, std::nullopt, {code, std::move(detail)}};
}

handshake::step handshake::on_message(std::string_view bytes) {
  proto::HandshakeMessage message;
  if (bytes.size() > handshake_bytes_max
      || !message.ParseFromArray(bytes.data(), static_cast<int>(bytes.size())))
    return refuse(ec::malformed, "a handshake message that does not parse");
  if (message.has_denial()) {
    auto code = ec_from_wire(message.denial().code());
    return {{},
            std::nullopt,
            {code == ec::none ? ec::internal : code,
             "refused by the peer: " + message.denial().detail().substr(0, 512)}};
  }
  if (message.has_hello() && !peer_) {
    const auto& hello = message.hello();
    if (hello.version() != protocol_version)
      return refuse(ec::wrong_version, "this peer speaks version "
                                         + std::to_string(protocol_version) + ", the other "
                                         + std::to_string(hello.version()));
    auto nonce = handshake_nonce::from_raw(hello.nonce());
    auto claim = read_claim(hello);
    if (!nonce || !claim || hello.run_id().size() > run_id_bytes_max)
      return refuse(ec::malformed, "a hello with a field out of its limits");
    if (hello.run_id() != with_.run_id)
      return refuse(ec::wrong_run, "this peer belongs to the run '" + with_.run_id + "'");
    if (claim->id == with_.self->id())
      return refuse(
        ec::duplicate_identity,
        "both ends have the same identity: a peer dialled itself, or two share a key file");
    peer_ = std::move(claim);
    peer_nonce_ = *nonce;
    same_host_ = !with_.host.empty() && hello.host() == with_.host;
    proto::HandshakeMessage answer;
    answer.mutable_proof()->set_signature(
      std::string{with_.self->sign(proof_text(with_.dialled)).raw()});
    return {{answer.SerializeAsString()}, std::nullopt, {}};
  }
  if (message.has_proof() && peer_ && !done_) {
    auto by = signature::from_raw(message.proof().signature());
    auto text = proof_text(!with_.dialled);
    if (!by || !with_.verifier->verify(peer_->key, as_byte_span(text), *by))
      return refuse(ec::bad_signature, "the proof of identity does not verify");
    if (!with_.expected.is_zero() && peer_->id != with_.expected)
      return refuse(ec::bad_signature,
                    "another peer answers at this address: " + short_name(peer_->id)
                      + " instead of " + short_name(with_.expected));
    done_ = true;
    return {{}, peer_, {}};
  }
  return refuse(ec::protocol_violation, "a handshake message out of turn");
}

} // namespace waggle::net
