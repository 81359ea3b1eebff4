#pragma once

// Parses a stream of bytes in two ways: with frame_reader, for any cut of the stream, and with a
// simple oracle that sees the whole stream. For tests and for fuzzing.

#include <algorithm>
#include <cstring>
#include <functional>
#include <optional>
#include <ostream>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/net/frame_reader.hpp"
#include "runtime/net/handshake.hpp"

namespace waggle::net {

struct stream_terms {
  std::size_t window_bytes = 4096;
  std::size_t handshakes = 0; // number of handshake frames, after which the handshake is done
  bool granting = true;       // complete bodies are granted again at once; else never
};

struct seen_frame {
  frame_kind kind = frame_kind::message;
  std::string header;
  std::string body;
  std::size_t wire_bytes = 0;
  bool data = false;
  friend bool operator==(const seen_frame&, const seen_frame&) = default;
  friend std::ostream& operator<<(std::ostream& out, const seen_frame& f) {
    return out << "kind " << int(f.kind) << ", " << f.header.size() << " + " << f.body.size()
               << " bytes, on the wire " << f.wire_bytes << (f.data ? " of data" : "");
  }
};

struct reading {
  std::vector<seen_frame> frames;
  ec ended = ec::none; // the error; none: the stream ended first
  std::string wrong;   // an invariant that frame_reader violated; empty: none
};

inline std::string frame_bytes(frame_kind kind, std::string_view header,
                               std::string_view body = {}) {
  std::string out{as_string_view(write_prefix(
    {kind, static_cast<std::uint32_t>(header.size()), static_cast<std::uint32_t>(body.size())}))};
  return (out += header) += body;
}

/// An opening: `size` bytes are announced, none follow.
inline std::string opening_bytes(std::string_view header, std::uint32_t size) {
  auto prefix =
    write_prefix({frame_kind::opening, static_cast<std::uint32_t>(header.size()), size});
  return std::string{as_string_view(prefix)} += header;
}

/// Reads with frame_reader. `cut` returns how many bytes arrive next (at least one), `early` is how
/// many arrived before the reader existed.
inline reading read_in_pieces(std::string_view stream, const stream_terms& terms,
                              const std::function<std::size_t()>& cut, std::size_t early = 0) {
  reading out;
  std::size_t held = 0;
  auto memory = [&](const std::string&, std::size_t bytes) -> std::shared_ptr<std::byte> {
    held += bytes;
    if (held > terms.window_bytes)
      out.wrong = "took more memory than the window";
    // Exactly the requested size, so that the address sanitizer detects any overrun.
    return {new std::byte[bytes], [&held, bytes](const std::byte* memory) {
              held -= bytes;
              delete[] memory;
            }};
  };
  std::vector<payload> kept;
  early = std::min(early, stream.size());
  frame_reader reader{stream.substr(0, early), terms.window_bytes, memory};
  stream.remove_prefix(early);
  std::size_t handshakes = 0;
  if (terms.handshakes == 0)
    reader.open();
  for (;;) {
    auto next = reader.next();
    if (!next.ok()) {
      out.ended = next.error().code;
      return out;
    }
    if (*next) {
      auto& seen = **next;
      auto& body = seen.content.body;
      out.frames.push_back({seen.kind, seen.content.header,
                            std::string{as_string_view(body.view())}, seen.wire_bytes, seen.data});
      if (seen.kind == frame_kind::handshake && ++handshakes == terms.handshakes)
        reader.open();
      if (terms.granting)
        (void)reader.window().give_back(body.size);
      else
        kept.push_back(body);
      continue;
    }
    if (stream.empty())
      return out;
    auto room = reader.room();
    if (room.empty() || room.size() > std::max<std::size_t>(terms.window_bytes, 1_MiB)) {
      out.wrong = "has no room, or too much of it";
      return out;
    }
    auto bytes = std::min({std::max<std::size_t>(cut(), 1), room.size(), stream.size()});
    std::memcpy(room.data(), stream.data(), bytes);
    stream.remove_prefix(bytes);
    reader.filled(bytes);
  }
}

/// The oracle: parses the whole stream at once.
inline reading read_simply(std::string_view stream, const stream_terms& terms) {
  reading out;
  std::optional<seen_frame> opened; // the open body, with the bytes seen so far
  std::size_t opened_size = 0;
  std::size_t handshakes = 0;
  std::size_t outstanding = 0;
  std::size_t dealt_with = 0;
  auto ends = [&](ec why) {
    out.ended = why;
    return out;
  };
  auto deal_with = [&](std::size_t bytes) {
    dealt_with += terms.granting ? bytes : 0;
    if (dealt_with >= terms.window_bytes / 4)
      outstanding -= std::exchange(dealt_with, 0);
  };
  while (stream.size() >= frame_prefix::size) {
    auto prefix = read_prefix(as_byte_span(stream.substr(0, frame_prefix::size)));
    if (!prefix.ok())
      return ends(prefix.error().code);
    auto kind = prefix->kind;
    bool shaking = handshakes < terms.handshakes;
    bool whole = kind == frame_kind::message && prefix->body_bytes > 0;
    if (shaking != (kind == frame_kind::handshake)
        || (shaking && prefix->header_bytes > handshake_bytes_max)
        || (opened && (whole || kind == frame_kind::opening || kind == frame_kind::reference))
        || (kind == frame_kind::slice
            && (!opened || prefix->body_bytes > opened_size - opened->body.size())))
      return ends(ec::protocol_violation);
    if (stream.size() < frame_prefix::size + prefix->header_bytes)
      return out;
    std::string header{stream.substr(frame_prefix::size, prefix->header_bytes)};
    stream.remove_prefix(frame_prefix::size + prefix->header_bytes);
    if (whole || kind == frame_kind::opening) {
      if (outstanding + prefix->body_bytes > terms.window_bytes)
        return ends(ec::protocol_violation);
      outstanding += prefix->body_bytes;
    }
    auto head_bytes = frame_prefix::size + header.size();
    if (kind == frame_kind::opening) {
      opened = seen_frame{frame_kind::message, header, {}, 0, true};
      opened_size = prefix->body_bytes;
      out.frames.push_back({kind, {}, {}, head_bytes, false});
      continue;
    }
    if (prefix->body_bytes == 0) {
      out.frames.push_back({kind, header, {}, head_bytes, false});
      handshakes += kind == frame_kind::handshake ? 1 : 0;
      continue;
    }
    if (stream.size() < prefix->body_bytes)
      return out;
    std::string body{stream.substr(0, prefix->body_bytes)};
    stream.remove_prefix(prefix->body_bytes);
    auto wire_bytes = head_bytes + body.size();
    if (whole) {
      deal_with(body.size());
      out.frames.push_back({kind, header, std::move(body), wire_bytes, true});
      continue;
    }
    opened->body += body;
    if (opened->body.size() < opened_size) {
      out.frames.push_back({kind, {}, {}, wire_bytes, true});
      continue;
    }
    deal_with(opened_size);
    opened->wire_bytes = wire_bytes;
    out.frames.push_back(std::move(*opened));
    opened.reset();
  }
  return out;
}

} // namespace waggle::net
