#include "runtime/net/handshake.hpp"

#include "runtime/net/refusals.hpp"
#include "waggle_handshake.pb.h"

namespace waggle::net {

namespace {

void append_text(std::string& out, std::string_view text) {
  for (int i = 0; i < 4; ++i)
    out.push_back(static_cast<char>((text.size() >> (8 * i)) & 0xffU));
  out.append(text);
}

void fill(proto::Denial& denial, const failure& why) {
  denial.set_code(static_cast<std::uint32_t>(why.code));
  denial.set_detail(why.detail.substr(0, denial_text_bytes_max));
}

failure reason_of(const proto::Denial& denial) {
  auto code = ec_from_wire(denial.code());
  return {code == ec::none ? ec::internal : code,
          "refused by the peer: " + denial.detail().substr(0, denial_text_bytes_max)};
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
  fill(*message.mutable_denial(), why);
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

handshake::handshake(setup with) : with_(std::move(with)) {
  if (with_.clock)
    time_ = to_nanoseconds(with_.clock->now());
  if (with_.members)
    list_ = with_.members->rank();
}

std::string handshake::hello() const {
  proto::HandshakeMessage message;
  auto& hello = *message.mutable_hello();
  hello.set_version(protocol_version);
  hello.set_key(std::string{with_.self->key().raw()});
  hello.set_nonce(std::string{with_.nonce.raw()});
  hello.set_client_mode(with_.record.client_mode);
  hello.set_host(with_.host);
  hello.set_instance(with_.claims.instance);
  hello.set_time(static_cast<std::uint64_t>(time_));
  hello.set_looks(with_.claims.looks);
  hello.set_has_key(with_.run->has_key());
  if (with_.members) {
    hello.set_authority(std::string{with_.members->authority().raw()});
    hello.set_list_version(list_.version);
    hello.set_list_hash(std::string{list_.hash.raw()});
  }
  for (const auto& address : with_.record.addresses) {
    auto& to = *hello.add_addresses();
    to.set_host(address.host);
    to.set_port(address.port);
  }
  return message.SerializeAsString();
}

/// What is different for each connection and each end of it.
std::string handshake::transcript(bool ours) const {
  auto own_key = with_.self->key().raw();
  auto own_nonce = with_.nonce.raw();
  auto peer_key = peer_->key.raw();
  auto peer_nonce = peer_nonce_.raw();
  std::string text;
  append_text(text, with_.dialled == ours ? "dialler" : "acceptor");
  append_text(text, with_.dialled ? own_key : peer_key);
  append_text(text, with_.dialled ? peer_key : own_key);
  append_text(text, with_.dialled ? own_nonce : peer_nonce);
  append_text(text, with_.dialled ? peer_nonce : own_nonce);
  append_text(text, with_.channel);
  return text;
}

std::string handshake::proof_text(bool ours, std::string_view agreement) const {
  auto instance = ours ? with_.claims.instance : claims_.instance;
  auto time = ours ? time_ : peer_time_;
  const auto& list = ours ? list_ : peer_list_;
  std::string text = "waggle/handshake/4";
  text += transcript(ours);
  append_text(text, std::to_string(instance));
  append_text(text, std::to_string(time));
  append_text(text, agreement);
  append_text(text, std::to_string(list.version));
  append_text(text, list.hash.raw());
  return text;
}

/// Behind a proof of ours, if our list is newer.
void handshake::send_list(step& next) const {
  auto held = with_.members ? with_.members->list() : nullptr;
  if (!held || !list_.replaces(peer_list_))
    return;
  proto::HandshakeMessage message;
  message.mutable_members()->set_list(
    with_.run->masked(transcript(true) + "members", held->bytes()));
  next.send.push_back(message.SerializeAsString());
}

std::string handshake::own_proof(const failure& refusal) const {
  proto::HandshakeMessage message;
  auto& proof = *message.mutable_proof();
  auto agreement = with_.claims.agreement ? with_.claims.agreement->encode() : std::string{};
  proof.set_knowledge(std::string{with_.run->proof(transcript(true)).raw()});
  proof.set_signature(std::string{with_.self->sign(proof_text(true, agreement)).raw()});
  proof.set_agreement(with_.run->masked(transcript(true), std::move(agreement)));
  if (refusal.code != ec::none)
    fill(*proof.mutable_refusal(), refusal);
  return message.SerializeAsString();
}

handshake::step handshake::refuse(ec code, std::string detail) const {
  failure why{code, std::move(detail)};
  return {{write_denial(why)}, std::nullopt, std::move(why), false, std::nullopt, false};
}

/// The same after the peer's proof was checked.
handshake::step handshake::refuse_proved(ec code, std::string detail) const {
  auto step = refuse(code, std::move(detail));
  step.peer_is_open = with_.dialled && !refusal_;
  return step;
}

handshake::step handshake::on_message(std::string_view bytes) {
  proto::HandshakeMessage message;
  if (bytes.size() > (awaits_list_ ? list_message_bytes_max : handshake_bytes_max)
      || !message.ParseFromArray(bytes.data(), static_cast<int>(bytes.size())))
    return refuse(ec::malformed, "a handshake message that cannot be parsed");
  if (message.has_denial())
    return {{}, std::nullopt, reason_of(message.denial()), false, std::nullopt, false};
  if (message.has_members() && awaits_list_)
    return on_members(message.members());
  if (message.has_hello() && !peer_)
    return on_hello(message.hello());
  if (message.has_proof() && peer_ && !done_ && !awaits_list_)
    return on_proof(message.proof());
  return refuse(ec::protocol_violation, "a handshake message out of turn");
}

handshake::step handshake::on_hello(const proto::Hello& hello) {
  if (hello.version() != protocol_version)
    return refuse(ec::wrong_version, "this peer speaks version " + std::to_string(protocol_version)
                                       + ", the other " + std::to_string(hello.version()));
  if (hello.has_key() != with_.run->has_key())
    return refuse(ec::wrong_run, std::string{with_.run->has_key() ? key_here : key_there});
  if (hello.authority().empty() != (with_.members == nullptr))
    return refuse(ec::wrong_run, std::string{with_.members ? members_here : members_there});
  if (with_.members && hello.authority() != with_.members->authority().raw())
    return refuse(ec::wrong_run, std::string{another_authority});
  auto nonce = handshake_nonce::from_raw(hello.nonce());
  auto claim = read_claim(hello);
  auto list = with_.members ? digest::from_raw(hello.list_hash()) : digest{};
  if (!nonce || !claim || !list)
    return refuse(ec::malformed, "a hello with a field out of bounds");
  if (!with_.certified.is_zero() && claim->key != with_.certified)
    return refuse(ec::bad_signature, std::string{relayed});
  peer_ = std::move(claim);
  peer_nonce_ = *nonce;
  claims_.instance = hello.instance();
  claims_.looks = hello.looks();
  if (with_.members)
    peer_list_ = {hello.list_version(), *list};
  same_host_ = !with_.host.empty() && hello.host() == with_.host;
  peer_time_ = static_cast<std::int64_t>(hello.time());
  if (with_.clock && peer_time_ != 0)
    clock_offset_ = least_offset(swarm_time_from(peer_time_), with_.began, with_.clock->now());
  step next;
  if (with_.dialled) {
    next.send.push_back(own_proof({}));
    send_list(next);
  }
  return next;
}

/// Whether we accept a peer whose proof was checked; if not, the reason as seen from either end.
handshake::judgement handshake::judge() const {
  if (peer_->id == with_.self->id()) {
    failure why{ec::duplicate_identity, claims_.instance == with_.claims.instance
                                          ? "a peer dialled itself"
                                          : std::string{identity_in_use}};
    return {why, why};
  }
  if (beyond(clock_offset_, with_.clocks.refused))
    return {{ec::clock_skew, clock_sentence(clock_offset_, with_.clocks.refused)},
            {ec::clock_skew, clock_sentence(-clock_offset_, with_.clocks.refused)}};
  if (with_.members) {
    auto now = with_.clock ? with_.clock->now() : swarm_time{};
    if (auto why = with_.members->judge(with_.self->id(), now); why.here.code != ec::none)
      return {std::move(why.there), std::move(why.here)}; // the other end says the same
    if (auto why = with_.members->judge(peer_->id, now); why.here.code != ec::none)
      return {std::move(why.here), std::move(why.there)};
  }
  const auto& ours = with_.claims.agreement;
  if (ours && claims_.agreement)
    if (auto here = disagreement(*ours, *claims_.agreement))
      return {{ec::agreement_mismatch, std::move(*here)},
              {ec::agreement_mismatch, disagreement(*claims_.agreement, *ours).value_or("")}};
  return {};
}

handshake::step handshake::on_proof(const proto::Proof& proof) {
  if (proof.has_refusal())
    refusal_ = reason_of(proof.refusal());
  auto refuse = [&](ec code, std::string detail) { return refuse_proved(code, std::move(detail)); };
  if (!with_.run->proves(transcript(false), proof.knowledge()))
    return refuse(ec::wrong_run, std::string{with_.run->has_key() ? another_key : another_run});
  auto by = signature::from_raw(proof.signature());
  auto agreement = with_.run->masked(transcript(false), proof.agreement());
  if (!by || !with_.verifier->verify(peer_->key, as_byte_span(proof_text(false, agreement)), *by))
    return refuse(ec::bad_signature, "the proof of identity does not verify");
  // Whoever meets itself is told so by judge().
  if (!with_.expected.is_zero() && peer_->id != with_.expected && peer_->id != with_.self->id())
    return refuse(ec::bad_signature,
                  "another peer answers at this address: " + short_name(peer_->id) + " instead of "
                    + short_name(with_.expected));
  if (!agreement.empty()) {
    auto read = run_agreement::decode(agreement);
    if (!read)
      return refuse(read.error().code, read.error().detail);
    claims_.agreement = std::make_shared<const run_agreement>(std::move(*read));
  }
  if (!with_.members || !peer_list_.replaces(list_))
    return conclude();
  awaits_list_ = true;
  step next;
  next.list_follows = true;
  return next;
}

handshake::step handshake::on_members(const proto::Members& members) {
  auto taken =
    with_.members->take(with_.run->masked(transcript(false) + "members", members.list()));
  if (!taken)
    return refuse_proved(taken.error().code, taken.error().detail);
  return conclude();
}

/// Once all is known that both ends judge by.
handshake::step handshake::conclude() {
  auto [here, there] = judge();
  step last;
  if (with_.clock && peer_time_ != 0)
    last.clock = clock_reading{peer_->id, clock_offset_};
  if (!with_.dialled) {
    last.send.push_back(own_proof(there));
    send_list(last);
  } else if (refusal_) {
    if (here.code == ec::none)
      here = *refusal_;
  } else if (here.code != ec::none) {
    last.send.push_back(write_denial(there));
    last.peer_is_open = true;
  }
  if (here.code != ec::none) {
    last.why = std::move(here);
    return last;
  }
  done_ = true;
  last.peer = peer_;
  return last;
}

} // namespace waggle::net
