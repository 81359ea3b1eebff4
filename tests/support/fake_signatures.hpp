#pragma once

#include <algorithm>
#include <string>

#include "runtime/allreduce/round_engine.hpp"
#include "runtime/crypto/digest.hpp"

namespace waggle::testing {

/// Stands for `id`'s signature where tests need thousands of them: a hash, which anybody can make.
inline signature fake_signature(const peer_id& id, std::string_view statement) {
  auto half = sha256(std::string{id.raw()} + std::string{statement});
  signature out;
  std::copy(half.bytes.begin(), half.bytes.end(), out.bytes.begin());
  std::copy(half.bytes.begin(), half.bytes.end(), out.bytes.begin() + half.bytes.size());
  return out;
}

/// What `member` sends when it prepares `view` of `plan`.
inline wire::round_prepared prepared_by(std::size_t member, const round_plan& plan,
                                        const round_view& view) {
  return {plan.id, view.number, view.result,
          fake_signature(plan.members[member].peer.id, prepared_statement(plan.id, view))};
}

/// A port of the member `self`, with fake signatures. Nobody else reduces for it.
class fake_signing_port : public round_port {
public:
  explicit fake_signing_port(const peer_id& self) : self_id_(self) {}

  signature sign(std::string_view statement) override {
    return fake_signature(self_id_, statement);
  }
  bool verify(const peer_record& by, std::string_view statement, const signature& its) override {
    return its == fake_signature(by.id, statement);
  }
  bool reduce(const reduce_part&) override { return false; }
  digest secret(const round_id&, std::uint32_t view) override {
    return sha256(std::to_string(view) + " of "
                  + std::to_string(reinterpret_cast<std::uintptr_t>(this)));
  }
  void count_part() override {}

private:
  const peer_id self_id_;
};

/// Accepts everything and does nothing.
class mute_port final : public fake_signing_port {
public:
  using fake_signing_port::fake_signing_port;
  void send(const peer_record&, wire::event, payload) override {}
  void count_refused(ec) override {}
  void log(const std::string&) override {}
  void finished(round_finished) override {}
};

} // namespace waggle::testing
