#include "runtime/net/handshake.hpp"

#include "handshake.pb.h"
#include "runtime/net/refusals.hpp"

namespace waggle::net {

namespace {

void append_text(std::string& out, std::string_view text) {
  for (int i = 0; i < 4; ++i)
    out.push_back(static_cast<char>((text.size() >> (8 * i)) & 0xffU));
  out.append(text);
}

constexpr std::size_t run_id_bytes_max = 256;

constexpr std::size_t detail_bytes_max = 512;

failure reason_of(const proto::Denial& denial) {
  auto code = ec_from_wire(denial.code());
  return {code == ec::none ? ec::internal : code,
          "refused by the peer: " + denial.detail().substr(0, detail_bytes_max)};
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

std::string write_denial(const failure& why) {
  proto::HandshakeMessage message;
  message.mutable_denial()->set_code(static_cast<std::uint32_t>(why.code));
  message.mutable_denial()->set_detail(why.detail.substr(0, detail_bytes_max));
  return message.SerializeAsString();
}

failure read_denial(std::string_view bytes) {
  proto::HandshakeMessage message;
  if (bytes.size() > handshake_bytes_max
      || !message.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))
      || !message.has_denial())
    return {ec::malformed, "a denial that cannot be parsed"};
  return reason_of(message.denial());
}

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
  hello.set_instance(with_.claims.instance);
  for (const auto& address : with_.record.addresses) {
    auto& to = *hello.add_addresses();
    to.set_host(address.host);
    to.set_port(address.port);
  }
  return message.SerializeAsString();
}

std::string handshake::proof_text(bool ours, std::string_view agreement) const {
  auto own_key = with_.self->key().raw();
  auto own_nonce = with_.nonce.raw();
  auto peer_key = peer_->key.raw();
  auto peer_nonce = peer_nonce_.raw();
  auto instance = ours ? with_.claims.instance : claims_.instance;
  std::string text = "waggle/handshake/2";
  append_text(text, with_.dialled == ours ? "dialler" : "acceptor");
  append_text(text, with_.run_id);
  append_text(text, with_.dialled ? own_key : peer_key);
  append_text(text, with_.dialled ? peer_key : own_key);
  append_text(text, with_.dialled ? own_nonce : peer_nonce);
  append_text(text, with_.dialled ? peer_nonce : own_nonce);
  append_text(text, std::to_string(instance));
  append_text(text, agreement);
  return text;
}

handshake::step handshake::refuse(ec code, std::string detail) const {
  failure why{code, std::move(detail)};
  return {{write_denial(why)}, std::nullopt, std::move(why)};
}

handshake::step handshake::on_message(std::string_view bytes) {
  proto::HandshakeMessage message;
  if (bytes.size() > handshake_bytes_max
      || !message.ParseFromArray(bytes.data(), static_cast<int>(bytes.size())))
    return refuse(ec::malformed, "a handshake message that cannot be parsed");
  if (message.has_denial())
    return {{}, std::nullopt, reason_of(message.denial())};
  if (message.has_hello() && !peer_)
    return on_hello(message.hello());
  if (message.has_proof() && peer_ && !done_)
    return on_proof(message.proof());
  return refuse(ec::protocol_violation, "a handshake message out of turn");
}

handshake::step handshake::on_hello(const proto::Hello& hello) {
  if (hello.version() != protocol_version)
    return refuse(ec::wrong_version, "this peer speaks version " + std::to_string(protocol_version)
                                       + ", the other " + std::to_string(hello.version()));
  auto nonce = handshake_nonce::from_raw(hello.nonce());
  auto claim = read_claim(hello);
  if (!nonce || !claim || hello.run_id().size() > run_id_bytes_max)
    return refuse(ec::malformed, "a hello with a field out of bounds");
  if (hello.run_id() != with_.run_id)
    return refuse(ec::wrong_run, "this peer belongs to the run '" + with_.run_id + "'");
  if (claim->id == with_.self->id())
    return refuse(ec::duplicate_identity, hello.instance() == with_.claims.instance
                                            ? "a peer dialled itself"
                                            : std::string{identity_in_use});
  peer_ = std::move(claim);
  peer_nonce_ = *nonce;
  claims_.instance = hello.instance();
  same_host_ = !with_.host.empty() && hello.host() == with_.host;
  auto agreement = with_.claims.agreement ? with_.claims.agreement->encode() : std::string{};
  proto::HandshakeMessage answer;
  answer.mutable_proof()->set_signature(
    std::string{with_.self->sign(proof_text(true, agreement)).raw()});
  answer.mutable_proof()->set_agreement(std::move(agreement));
  return {{answer.SerializeAsString()}, std::nullopt, {}};
}

handshake::step handshake::on_proof(const proto::Proof& proof) {
  auto by = signature::from_raw(proof.signature());
  auto text = proof_text(false, proof.agreement());
  if (!by || !with_.verifier->verify(peer_->key, as_byte_span(text), *by))
    return refuse(ec::bad_signature, "the proof of identity does not verify");
  if (!with_.expected.is_zero() && peer_->id != with_.expected)
    return refuse(ec::bad_signature,
                  "another peer answers at this address: " + short_name(peer_->id) + " instead of "
                    + short_name(with_.expected));
  if (!proof.agreement().empty()) {
    auto read = run_agreement::decode(proof.agreement());
    if (!read)
      return refuse(read.error().code, read.error().detail);
    claims_.agreement = std::make_shared<const run_agreement>(std::move(*read));
  }
  const auto& ours = with_.claims.agreement;
  if (ours && claims_.agreement)
    if (auto here = disagreement(*ours, *claims_.agreement)) {
      auto there = disagreement(*claims_.agreement, *ours).value_or("");
      return {{write_denial({ec::agreement_mismatch, there})},
              std::nullopt,
              {ec::agreement_mismatch, std::move(*here)}};
    }
  done_ = true;
  return {{}, peer_, {}};
}

} // namespace waggle::net
