#pragma once

// Single fields and small messages, protobuf to struct and back: shared by encode.cpp and
// decode.cpp. Readers return false (or a reason) for anything out of bounds; what they allocate is
// bounded.

#include <cmath>
#include <string>

#include "runtime/core/endpoint.hpp"
#include "runtime/core/result.hpp"
#include "runtime/crypto/identity.hpp"
#include "runtime/wire/messages.hpp"
#include "swarm.pb.h"

namespace waggle::wire {

template <class Id>
bool read_id(const std::string& raw, Id& out) {
  auto id = Id::from_raw(raw);
  if (id)
    out = *id;
  return id.has_value();
}

template <class Id>
std::string write_id(const Id& id) {
  return std::string{id.raw()};
}

/// Ids one after another.
template <class Id>
bool read_ids(const std::string& raw, std::vector<Id>& out) {
  if (raw.size() % Id::size != 0)
    return false;
  out.resize(raw.size() / Id::size);
  for (std::size_t i = 0; i < out.size(); ++i)
    if (!read_id(raw.substr(i * Id::size, Id::size), out[i]))
      return false;
  return true;
}

template <class Id>
std::string write_ids(const std::vector<Id>& ids) {
  std::string out;
  out.reserve(ids.size() * Id::size);
  for (const auto& id : ids)
    out += id.raw();
  return out;
}

inline bool read_mode(std::uint32_t value, member_mode& out) {
  if (value > 2)
    return false;
  out = static_cast<member_mode>(value);
  return true;
}

bool read_peer(const proto::Peer& from, peer_record& out);
void write_peer(const peer_record& from, proto::Peer& out);

/// Checks bounds only; `validate_record` checks whether a record is genuine.
bool read_record(const proto::Record& from, record& out);
void write_record(const record& from, proto::Record& out);

bool read_view(const proto::View& from, round_view& out);
void write_view(const round_view& from, proto::View& out);

using codec_runs = google::protobuf::RepeatedPtrField<proto::Plan::CodecRun>;
/// At most codec_runs_max runs; together at most plan_elements_max values.
bool read_codecs(const codec_runs& from, codec_plan& out);
void write_codecs(const codec_plan& from, codec_runs& out);

bool read_plan(const proto::Plan& from, round_plan& out);
void write_plan(const round_plan& from, proto::Plan& out);

} // namespace waggle::wire
