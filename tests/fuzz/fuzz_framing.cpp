// For any stream, cut in any way, frame_reader must return the same frames as an oracle that sees
// the whole stream.
//
//     first byte   1: the rest is a script (below), else a stream | 2: two handshake frames come
//                  first, else none | 4: bodies are granted again at once, else never
//     second byte  the window: 2 to the power of 4 to 19
//     third byte   how the stream is cut: 0 not at all, else at random into pieces of up to so many
//                  bytes (more if it is long)

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <iostream>

#include "runtime/core/random.hpp"
#include "tests/runtime/net/stream_oracle.hpp"

using namespace waggle;

namespace {

constexpr std::size_t script_frames_max = 32; // more are slow and find nothing new

/// Four bytes per frame: its kind; its header's size; its body's size in two bytes. With a script
/// the fuzzer need not discover the prefix format. In the kind's byte, 0x08 means a header above
/// the limit, and 0x10 a missing byte.
std::string stream_of(std::span<const std::uint8_t> script) {
  std::string out;
  auto fill = [&, next = '\0'](std::size_t bytes) mutable {
    for (; bytes > 0; --bytes)
      out.push_back(next++);
  };
  for (std::size_t n = 0; script.size() >= 4 && n < script_frames_max; ++n) {
    auto kind = static_cast<net::frame_kind>(script[0] & 7U);
    std::size_t header_bytes = script[1];
    std::uint32_t body_bytes = script[2] + 256U * (script[3] % 8U);
    if (kind != net::frame_kind::message && kind != net::frame_kind::opening
        && kind != net::frame_kind::slice)
      body_bytes = 0;
    if (kind == net::frame_kind::slice)
      header_bytes = 0;
    else if ((script[0] & 8U) != 0 && n < 2)
      header_bytes *= 1031;
    out += as_string_view(
      net::write_prefix({kind, static_cast<std::uint32_t>(header_bytes), body_bytes}));
    fill(header_bytes);
    if (kind != net::frame_kind::opening)
      fill(body_bytes);
    if ((script[0] & 16U) != 0)
      out.pop_back();
    script = script.subspan(4);
  }
  return out;
}

[[noreturn]] void differs(const char* what) {
  std::cerr << "frame_reader: " << what << "\n";
  std::abort();
}

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 3)
    return 0;
  net::stream_terms terms{std::size_t{1} << (4 + data[1] % 16), (data[0] & 2U) != 0 ? 2U : 0U,
                          (data[0] & 4U) != 0};
  std::span rest{data + 3, size - 3};
  auto stream =
    (data[0] & 1U) != 0 ? stream_of(rest) : std::string{as_string_view(std::as_bytes(rest))};
  if (stream.size() >= net::frame_prefix::size) {
    auto bytes = as_byte_span(stream).first<net::frame_prefix::size>();
    if (auto prefix = net::read_prefix(bytes); prefix.ok()) {
      auto again = net::write_prefix(*prefix);
      if (!std::equal(again.begin(), again.end(), bytes.begin()))
        differs("a prefix is not written as it was read");
    }
  }
  random_source random{data[2]};
  // Long streams are cut into longer pieces: reading a header of 256 KiB byte by byte is slow.
  auto piece = data[2] * (1 + stream.size() / 4096);
  auto cut = [&]() -> std::size_t { return piece == 0 ? 1_MiB : 1 + random.below(piece); };
  auto seen = net::read_in_pieces(stream, terms, cut, data[2] % 32);
  auto expected = net::read_simply(stream, terms);
  if (!seen.wrong.empty())
    differs(seen.wrong.c_str());
  if (seen.ended != expected.ended)
    differs("ends differently");
  if (seen.frames != expected.frames)
    differs("sees other frames");
  return 0;
}
